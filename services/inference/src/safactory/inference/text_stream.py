"""`TextStream`: the text of a growing list of tokens, cut at the first stop string.

Guarantees: never gives out half a character, nor text that may turn out to be the beginning of a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """Detokenises one completion."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self.text = ""
        """All that was given out."""
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._held = ""

    def push(self, token_id: int) -> str:
        """Take one more token and return the text that is now certain."""
        self._held += self._decoder.step(self._tokenizer, token_id) or ""
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._give(min(found))
        return self._give(len(self._held) - self._doubtful())

    def flush(self) -> str:
        """Return what was held back: no more tokens come."""
        return "" if self.stopped else self._give(len(self._held))

    def _doubtful(self) -> int:
        """Return the length of the longest end of the held text that begins a stop string."""
        for length in range(min(len(self._held), max(map(len, self._stop), default=1) - 1), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stop):
                return length
        return 0

    def _give(self, length: int) -> str:
        given, self._held = self._held[:length], self._held[length:]
        self.text += given
        return given
