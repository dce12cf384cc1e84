"""`SessionFolder`: one session's place on disk while it runs; `WorkerFolder`: where a worker keeps them.

A session folder holds `work` (the runner's own, kept as a snapshot when there is something in it), `home` and `tmp`
(scratch), and `control` (the request, and the result file if the runner writes one). A worker folder is locked while
its worker lives, so that the next worker can clear away what one that was killed left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

RESULT_BYTES_MAX = 1024 * 1024
"""A result file larger than this is not read."""


@dataclass(frozen=True)
class SessionFolder:
    """The folder of one lease."""

    path: Path

    @property
    def work(self) -> Path:
        """The runner's working folder."""
        return self.path / "work"

    @property
    def home(self) -> Path:
        """What the runner sees as HOME."""
        return self.path / "home"

    @property
    def tmp(self) -> Path:
        """What the runner sees as TMPDIR."""
        return self.path / "tmp"

    @property
    def request(self) -> Path:
        """The start request as JSON."""
        return self.path / "control" / "request.json"

    @property
    def result(self) -> Path:
        """Where a runner may write its result instead of printing it."""
        return self.path / "control" / "result.json"

    def make(self, request_json: str) -> None:
        """Make the folder and write the request."""
        for part in (self.work, self.home, self.tmp, self.request.parent):
            part.mkdir(parents=True)
        self.request.write_text(request_json)

    def result_text(self) -> str:
        """Return what the runner wrote to its result file, empty when there is none or it is no plain, small file."""
        try:
            fd = os.open(self.result, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with os.fdopen(fd, "rb") as file:
            try:
                content = file.read(RESULT_BYTES_MAX + 1)
            except OSError:
                return ""
        return content.decode(errors="replace") if len(content) <= RESULT_BYTES_MAX else ""

    def remove(self) -> None:
        """Remove the folder with all that is in it, also where the runner took its own permissions away."""
        shutil.rmtree(self.path, onerror=lambda _call, path, _error: _force(Path(path)))
        if self.path.exists():
            shutil.rmtree(self.path, ignore_errors=True)


class WorkerFolder:
    """All sessions of one worker."""

    def __init__(self, root: Path, worker_id: str) -> None:
        self._root = root.absolute()
        self.path = self._root / worker_id
        self._lock: IO[str] | None = None

    def make(self) -> None:
        """Make and lock this worker's folder, and remove those of workers that are dead."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        for other in self._root.iterdir():
            if other != self.path and other.is_dir() and (lock := _locked(other)):
                shutil.rmtree(other, ignore_errors=True)
                lock.close()

    def session(self, session_id: str, attempt: int, fence: int) -> SessionFolder:
        """Return the place of one lease, which no other lease shares."""
        safe = "".join(character if character.isalnum() else "-" for character in session_id)[:64]
        return SessionFolder(self.path / f"{safe}.{attempt}.{fence}")

    def remove(self) -> None:
        """Remove this worker's folder, and the root when no other worker uses it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock:
            self._lock.close()
        with contextlib.suppress(OSError):
            self._root.rmdir()


def _locked(folder: Path) -> IO[str] | None:
    file = (folder / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _force(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.parent.chmod(0o700)
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
        else:
            path.unlink(missing_ok=True)
