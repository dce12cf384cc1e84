"""The events of a session's life: queued → leased → finished → sealed → (scored) → ended.

An attempt that ended for a reason that a retry can help is followed by `queued` with the next attempt.
"""

from __future__ import annotations

from typing import ClassVar

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event, Model
from safactory.contracts.payload import Payload
from safactory.contracts.runner import RunOutcome

_ATTEMPT = ("session_id", "attempt")


class SessionEvent(Event):
    """What every event of a session carries."""

    identified_by: ClassVar[tuple[str, ...]] = _ATTEMPT

    session_id: str
    attempt: int
    """Counts from 1."""
    job_id: str
    group_id: str
    environment: str


class SessionQueued(SessionEvent):
    """An attempt waits for a worker."""

    type: ClassVar[str] = "session.queued"

    sample: int
    """Position in its group, from 0."""
    group_size: int
    row: int
    """The dataset row, from 0."""
    epoch: int
    """The pass over the dataset, from 0."""
    task: Payload
    """The dataset row as JSON, ground truth included."""
    evaluator_path: str
    """The rule evaluator's file, absolute; empty when the environment has none."""
    evaluation_timeout_s: float = 60.0
    pass_score: float = 10.0
    route: str
    mode: str = "evaluate"


class SessionLeased(SessionEvent):
    """A worker holds an attempt."""

    type: ClassVar[str] = "session.leased"
    identified_by: ClassVar[tuple[str, ...]] = (*_ATTEMPT, "fence")

    worker_id: str
    lease_id: str
    fence: int


class SessionFinished(SessionEvent):
    """A worker reported how the runner ended; the attempt is not sealed or scored yet."""

    type: ClassVar[str] = "session.finished"

    outcome: RunOutcome


class CallError(Model):
    """Why a model call failed."""

    http_status: int = 0
    """0 when the model server gave no answer."""
    message: str
    retryable: bool = True


class SessionSealed(SessionEvent):
    """The gateway takes no more calls of an attempt; all of its steps are on the bus."""

    type: ClassVar[str] = "session.sealed"

    last_seq: int
    prompt_tokens: int
    completion_tokens: int
    truncated: bool = False
    """The step budget was spent."""
    last_error: CallError | None = None
    """Set when the last call failed."""


class SessionEnded(SessionEvent):
    """A session is over for good: this attempt was its last."""

    type: ClassVar[str] = "session.ended"

    reason: EndReason
    cause: str = ""
    score: float | None = None
    """0–10; None when it was not scored."""
    last_seq: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    wall_s: float = 0.0
    """The runner's wall time in the last attempt."""
    group_size: int = 1
    mode: str = "evaluate"
