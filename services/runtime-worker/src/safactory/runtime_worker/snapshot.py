"""`Snapshot`: a runner's working folder as one tar archive."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Snapshot:
    """What was in a folder."""

    archive: bytes | None
    """None when the files are more than may be kept."""
    files: int
    content_bytes: int


def take_snapshot(folder: Path, content_bytes_max: int) -> Snapshot:
    """Archive the plain files and links of a folder; links are kept as links and never followed."""
    paths: list[Path] = []
    content_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent) / name
            info = path.lstat()
            if stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                paths.append(path)
                content_bytes += info.st_size
    if content_bytes > content_bytes_max or not paths:
        return Snapshot(archive=None, files=len(paths), content_bytes=content_bytes)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(paths):
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False)
    return Snapshot(archive=buffer.getvalue(), files=len(paths), content_bytes=content_bytes)
