"""`BoundedOutput`: one output stream of a runner, drained for as long as it writes and kept only in part.

The start and the end are kept, so that a result is found whether a runner prints before or after its flood. Memory is
bounded by twice what may be kept, whatever is written, and a runner never blocks on a full pipe.
"""

from __future__ import annotations

import asyncio
import os

READ_BYTES = 256 * 1024


class BoundedOutput:
    """A pipe whose writing end a runner gets."""

    def __init__(self, *, head_bytes_max: int, tail_bytes_max: int) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._head_bytes_max = head_bytes_max
        self._tail_bytes_max = tail_bytes_max
        self._head = bytearray()
        self._tail = bytearray()
        self.bytes_seen = 0
        """All that was written, also what was not kept."""
        self._at_end = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)

    @property
    def text(self) -> str:
        """What was kept; a line break stands for what was left out between start and end."""
        tail = self._tail[-self._tail_bytes_max :] if self._tail_bytes_max else b""
        cut = b"\n" if self.bytes_seen > len(self._head) + len(tail) and self._head else b""
        return (self._head + cut + tail).decode(errors="replace")

    def close_writer(self) -> None:
        """Close this process's copy of the writing end, once the runner has its own."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    async def finish(self, within_s: float) -> None:
        """Read what is left until the last writer is gone, or for so long, and close the pipe."""
        self.close_writer()
        try:
            async with asyncio.timeout(within_s):
                await self._at_end.wait()
        except TimeoutError:
            pass  # a process that escaped still holds the pipe; all that the runner wrote was read before
        finally:
            self.close()

    def close(self) -> None:
        """Stop reading."""
        self.close_writer()
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1
            self._at_end.set()

    def _read(self) -> None:
        try:
            chunk = os.read(self._reader, READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._loop.remove_reader(self._reader)
            self._at_end.set()
            return
        self.bytes_seen += len(chunk)
        room = self._head_bytes_max - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._tail_bytes_max + READ_BYTES:
            del self._tail[: len(self._tail) - self._tail_bytes_max]
