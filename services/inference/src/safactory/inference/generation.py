"""`Generation`: one request on its way through the engine, from prompt to finish reason.

The engine's thread writes it, one step at a time; the HTTP side awaits `updates()`. Guarantees: the spans of weight
versions cover the completion tokens without a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from safactory.contracts.errors import UpstreamError
from safactory.contracts.ids import VersionSpan
from safactory.inference.sampling import SamplingParams
from safactory.inference.text_stream import TextStream


class FinishReason(StrEnum):
    """Why a completion is over."""

    STOP = "stop"
    """An end-of-sequence token or a stop string."""
    LENGTH = "length"
    """max_tokens, or the context, is used up."""
    ABORTED = "aborted"
    """Nobody waits for it any more."""


@dataclass(frozen=True)
class GenerationRequest:
    """What to generate."""

    prompt_ids: list[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int = 0
    """Alternatives recorded at each position."""
    stream: bool = False
    """True: every step is an update; False: only the last."""


@dataclass(frozen=True)
class TokenInfo:
    """One sampled token."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]]


@dataclass
class Update:
    """What is new since the update before."""

    tokens: list[TokenInfo] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None


class Generation:
    """One request, its completion so far, and the way to whoever waits for it."""

    def __init__(self, request: GenerationRequest, text: TextStream, generator: torch.Generator | None) -> None:
        self.request = request
        self.token_ids: list[int] = []
        self.spans: list[VersionSpan] = []
        self.finish_reason: FinishReason | None = None
        self.aborted = False
        self.generator = generator
        self.text = text
        self._pending = Update()
        self._error: UpstreamError | None = None
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[Update | UpstreamError] = asyncio.Queue()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the one who waits lives."""
        return self._loop

    @property
    def context_ids(self) -> list[int]:
        """Prompt and completion so far."""
        return self.request.prompt_ids + self.token_ids

    def record(self, info: TokenInfo, version: str, *, is_eos: bool) -> None:
        """Take one sampled token; called by the engine's thread."""
        at = len(self.token_ids)
        self.token_ids.append(info.token_id)
        if self.spans and self.spans[-1].version == version:
            self.spans[-1] = VersionSpan(version=version, start=self.spans[-1].start, end=at + 1)
        else:
            self.spans.append(VersionSpan(version=version, start=at, end=at + 1))
        self._pending.tokens.append(info)
        self._pending.text += self.text.push(info.token_id)
        if self.text.stopped or (is_eos and not self.request.ignore_eos):
            self.finish(FinishReason.STOP)
        elif len(self.token_ids) >= self.request.max_tokens:
            self.finish(FinishReason.LENGTH)

    def finish(self, reason: FinishReason) -> None:
        """End the completion; what the text held back is given out."""
        self.finish_reason = reason
        self._pending.text += self.text.flush()
        self._pending.finish_reason = reason

    def fail(self, error: UpstreamError) -> None:
        """End without a completion."""
        self.finish_reason = FinishReason.ABORTED
        self._error = error

    def take(self) -> Update | UpstreamError | None:
        """Return what should be delivered after this step; called by the engine's thread."""
        if self._error is not None:
            return self._error
        if not self.request.stream and self.finish_reason is None:
            return None
        pending, self._pending = self._pending, Update()
        return pending

    def deliver(self, update: Update | UpstreamError) -> None:
        """Hand an update over; called on the waiting side's loop."""
        self._updates.put_nowait(update)

    async def updates(self) -> AsyncIterator[Update]:
        """Yield updates up to the one with a finish reason.

        Raises:
            UpstreamError: the engine could not go on.
        """
        while True:
            update = await self._updates.get()
            if isinstance(update, UpstreamError):
                raise update
            yield update
            if update.finish_reason is not None:
                return

    async def whole(self) -> Update:
        """Return the completion as one update.

        Raises:
            UpstreamError: the engine could not go on.
        """
        whole = Update()
        async for update in self.updates():
            whole.tokens += update.tokens
            whole.text += update.text
            whole.finish_reason = update.finish_reason
        return whole
