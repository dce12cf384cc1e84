"""A step: one model call that the gateway admitted, whatever became of it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from safactory.contracts.event import Event, Model
from safactory.contracts.ids import VersionSpan
from safactory.contracts.payload import Payload


class StepStatus(StrEnum):
    """What became of a call."""

    OK = "ok"
    UPSTREAM_ERROR = "upstream_error"
    """The model server refused, failed or could not be reached; the client got an error."""
    UPSTREAM_TRUNCATED = "upstream_truncated"
    """The answer broke off without a finish reason."""
    CLIENT_ABORT = "client_abort"
    """The agent hung up before the answer was whole."""
    TIMEOUT = "timeout"
    """The model server went silent for longer than the gateway waits."""


class StepTokens(Model):
    """The token view of one call, all lists in order of position; lengths agree."""

    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    logprobs: list[float | None]
    """Natural log of the probability under the sampling distribution, one a completion token."""


class StepRecorded(Event):
    """One model call of a session."""

    type: ClassVar[str] = "step.recorded"
    identified_by: ClassVar[tuple[str, ...]] = ("session_id", "attempt", "seq")

    session_id: str
    """Empty for a call without a session."""
    attempt: int
    seq: int
    """Counts the admitted calls of an attempt from 1, without a gap."""
    job_id: str
    group_id: str
    environment: str

    status: StepStatus
    http_status: int
    """As the client saw it."""
    error: str = ""
    endpoint: str
    """The wire format: `chat.completions`, `responses`, `messages`."""
    route: str
    model: str
    """The model name sent upstream."""
    upstream: str = ""
    """The base URL that served it."""
    stream: bool = False

    input_hashes: list[str] = Field(default_factory=list)
    """The prompt's messages in order, by content."""
    output_hash: str = ""
    """The answer's message; empty when there was none."""
    messages: Payload
    """JSON list of the `Message`s among them that this session had not sent before."""
    parameters: Payload
    """JSON object: the request without its messages."""
    tokens: Payload | None = None
    """JSON of `StepTokens`, when the engine gave them."""
    weight_versions: list[VersionSpan] = Field(default_factory=list)
    temperature: float = 1.0

    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float | None = None
    """From admission to the first body byte of the answer; None when there was none."""
    total_s: float = 0.0
    upstream_s: float = 0.0
    """Of total_s, the time spent waiting for the model server."""
