"""`Outbox`: a local write-ahead file that holds what the broker would not take, in order.

An append has returned only when the record is on disk. A record leaves the file only after the broker has
acknowledged it; a crash in between repeats it, which its event id makes harmless. A last line that was cut off by a
crash was never acknowledged to anyone: it is skipped and counted.
"""

from __future__ import annotations

import base64
import json
import os
from collections import deque
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from safactory.contracts.errors import BusError
from safactory.infra.boundary import boundary
from safactory.infra.health import counter

TORN = counter("outbox_torn_records", "Unacknowledged records that a crash cut off in the write-ahead file")


class Record(NamedTuple):
    """One record for the broker."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]

    def to_line(self) -> bytes:
        """Return the record as one JSON line."""
        headers = [[name, _text(value)] for name, value in self.headers]
        fields = [self.topic, _text(self.key), _text(self.value), headers]
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Record:
        """Read what `to_line` wrote.

        Raises:
            ValueError: it is not such a line.
        """
        topic, key, value, headers = json.loads(line)
        pairs = tuple((name, base64.b64decode(text)) for name, text in headers)
        return cls(topic, base64.b64decode(key), base64.b64decode(value), pairs)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Outbox:
    """The write-ahead file of one publisher."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[Record] = deque()
        self._read()

    def __len__(self) -> int:
        return len(self._pending)

    def append(self, record: Record) -> None:
        """Write a record to disk.

        Raises:
            BusError: the disk did not take it either.
        """
        with boundary(BusError, f"write-ahead file {self._path}"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                _append_whole(file, record.to_line())
        self._pending.append(record)

    def first(self) -> Record:
        """Return the oldest record; the outbox must not be empty."""
        return self._pending[0]

    def remove_first(self) -> None:
        """Forget the oldest record; the file goes when the last one does."""
        self._pending.popleft()
        if not self._pending:
            self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        if not self._path.exists():
            return
        for line in self._path.read_bytes().splitlines(keepends=True):
            try:
                self._pending.append(Record.from_line(line))
            except ValueError:
                TORN.inc()
        whole = b"".join(record.to_line() for record in self._pending)
        if whole == self._path.read_bytes():
            return
        # A crash in the middle of this must not cost what the old file holds.
        mended = self._path.with_suffix(".mended")
        with mended.open("wb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        mended.replace(self._path)


def _append_whole(file: FileIO, line: bytes) -> None:
    """Append a line durably, or leave the file as it was: behind half a line, a whole one could not be read."""
    end = file.seek(0, os.SEEK_END)
    try:
        written = file.write(line)
        if written != len(line):
            raise OSError(f"the disk took {written} of {len(line)} bytes")
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise
