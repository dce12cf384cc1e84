"""Server-sent events out of arbitrary chunks of bytes: an event or a character may be split anywhere."""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """One event, or one comment such as a keep-alive ping, with its closing blank line."""

    raw: bytes
    """As it came."""
    data: str | None
    """The joined `data:` lines; None for a block without any."""

    @property
    def is_done(self) -> bool:
        """Whether this is the sentinel that ends an OpenAI stream."""
        return self.data == "[DONE]"


class EventStream:
    """Collects bytes and gives out the blocks that are whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._raw: list[bytes] = []
        self._data: list[bytes] = []

    @property
    def rest(self) -> bytes:
        """The bytes of a block that is not whole yet."""
        return b"".join(self._raw) + self._rest

    def feed(self, chunk: bytes) -> list[Block]:
        """Return the blocks that this chunk completes."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        found = []
        for line in lines:
            self._raw.append(line + b"\n")
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text:
                data = b"\n".join(self._data).decode(errors="replace") if self._data else None
                found.append(Block(b"".join(self._raw), data))
                self._raw, self._data = [], []
        return found
