"""`Dialect`: what the gateway must know of a wire format; the bytes themselves are passed on untouched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from pydantic import JsonValue

from safactory.contracts.ids import VersionSpan
from safactory.contracts.steps import StepTokens

Body = dict[str, JsonValue]


@dataclass(slots=True)
class Answer:
    """What an upstream's answer says, as far as it went."""

    message: Body | None = None
    """The assistant's message; None when there was none."""
    finish_reason: str = ""
    """Empty: the answer broke off."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    tokens: StepTokens | None = None
    weight_versions: list[VersionSpan] = field(default_factory=list)


class Assembler(Protocol):
    """Puts a streamed answer together from its events."""

    def feed(self, data: str) -> None:
        """Take the data of one server-sent event."""
        ...

    def answer(self) -> Answer:
        """Return what has come so far."""
        ...


class Dialect(Protocol):
    """One wire format."""

    endpoint: ClassVar[str]
    """As recorded on steps, e.g. `chat.completions`."""
    path: ClassVar[str]
    """Under the upstream's base URL."""

    def messages(self, body: Body) -> list[Body]:
        """Return the request's messages.

        Raises:
            ValueError: the request has none, or they have another form.
        """
        ...

    def parameters(self, body: Body) -> Body:
        """Return the request without its messages."""
        ...

    def upstream_body(self, body: Body, *, model: str, capture_tokens: bool) -> Body:
        """Return what is sent upstream."""
        ...

    def unasked(self, body: Body, data: str) -> bool:
        """Tell whether a streamed event exists only because the gateway asked for more than the client did."""
        ...

    def read(self, body: Body) -> Answer:
        """Read a whole answer; what it lacks stays empty."""
        ...

    def assembler(self) -> Assembler:
        """Return a reader for a streamed answer."""
        ...

    def stop(self, text: str, model: str, *, stream: bool) -> bytes:
        """Return a synthetic answer that tells the agent to stop."""
        ...

    def headers(self, api_key: str) -> Mapping[str, str]:
        """Return the upstream's authentication."""
        ...
