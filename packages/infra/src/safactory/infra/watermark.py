"""`Watermark`: the lowest offset of one partition that is not done."""

from __future__ import annotations


class Watermark:
    """Offsets begin in order and may be done in any order; gaps in the numbering are not waited for."""

    def __init__(self, next_offset: int) -> None:
        self._open: dict[int, None] = {}
        self.reached = next_offset
        """The next offset to begin."""

    @property
    def next(self) -> int:
        """Everything below this is done."""
        return next(iter(self._open), self.reached)

    def begin(self, offset: int) -> None:
        """An offset was taken up."""
        self._open[offset] = None
        self.reached = max(self.reached, offset + 1)

    def done(self, offset: int) -> None:
        """An offset needs no further work; saying so twice changes nothing."""
        self._open.pop(offset, None)
