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
            with self._path.open("ab") as file:
                file.write(record.to_line())
                file.flush()
                os.fsync(file.fileno())
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
        with self._path.open("wb") as file:
            file.writelines(record.to_line() for record in self._pending)
            file.flush()
            os.fsync(file.fileno())
