"""`SessionBook`: what the gateway knows of each session: its step numbers, its budget and whether it is sealed.

Rebuilt from the bus at start (`rebuild.py`), so a restart neither numbers a step twice nor gives back spent budget.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from safactory.contracts.sessions import CallError, SessionSealed
from safactory.contracts.steps import StepRecorded, StepStatus
from safactory.infra.session_tokens import SessionClaims


@dataclass(slots=True)
class SessionState:
    """One attempt of one session."""

    attempt: int
    seq: int = 0
    """The last step number given out."""
    charged: int = 0
    """Calls that count against the budget: all but those that the model server failed."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error_count: int = 0
    last_error: CallError | None = None
    last_model: str = ""
    stop_sent: bool = False
    closed: bool = False
    """No further call is admitted."""
    close_reason: str = ""
    sealed: SessionSealed | None = None
    first_seen_s: float = field(default_factory=time.time)
    last_seen_s: float = field(default_factory=time.time)
    max_steps: int = -1
    inflight: set[asyncio.Task[None]] = field(default_factory=set)
    streams: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    sent_messages: set[str] = field(default_factory=set)
    """Digests of the message bodies that are on the bus."""

    def __post_init__(self) -> None:
        self.idle.set()

    @property
    def budget_spent(self) -> bool:
        """Whether another call would be over the budget, those in flight included."""
        return 0 <= self.max_steps <= self.charged + len(self.inflight)


class SessionBook:
    """All sessions that are remembered."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._states: dict[str, SessionState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def find(self, session_id: str) -> SessionState | None:
        """Return the newest attempt of a session, None when it was never seen."""
        return self._states.get(session_id)

    def open(self, claims: SessionClaims) -> SessionState:
        """Return the state of the attempt that the claims name; an attempt older than the newest is closed."""
        state = self.at(claims.session_id, claims.attempt)
        state.max_steps = claims.max_steps
        state.last_seen_s = time.time()
        return state

    def at(self, session_id: str, attempt: int) -> SessionState:
        """Return the state of an attempt: a new one for a newer attempt, a closed one for an older."""
        state = self._states.get(session_id)
        if state is None or state.attempt < attempt:
            state = self._states[session_id] = SessionState(attempt)
        elif state.attempt > attempt:
            return SessionState(attempt, closed=True, close_reason=f"attempt {state.attempt} has begun")
        return state

    def replay_step(self, step: StepRecorded) -> None:
        """Account for a step that is on the bus already."""
        state = self.at(step.session_id, step.attempt)
        if step.seq > state.seq:
            state.seq = step.seq
            self.account(state, step)

    def replay_seal(self, sealed: SessionSealed) -> None:
        """Remember that an attempt was sealed."""
        state = self.at(sealed.session_id, sealed.attempt)
        state.closed, state.sealed = True, sealed

    def account(self, state: SessionState, step: StepRecorded) -> None:
        """Add one recorded step to its session's sums."""
        # What broke off has cost tokens, so it is charged; it is the model server's failure all the same.
        free = step.status in (StepStatus.UPSTREAM_ERROR, StepStatus.TIMEOUT)
        failed = free or step.status is StepStatus.UPSTREAM_TRUNCATED
        state.charged += not free
        state.error_count += failed
        state.prompt_tokens += step.prompt_tokens
        state.completion_tokens += step.completion_tokens
        state.last_model = step.route
        state.last_error = None
        if failed:
            state.last_error = CallError(
                http_status=0 if step.status is StepStatus.TIMEOUT else step.http_status,
                message=step.error,
                retryable=step.http_status not in (400, 401, 403, 404, 413, 422),
            )

    def forget_old(self) -> None:
        """Drop sessions that were sealed long ago; their tokens have expired."""
        horizon = time.time() - self._ttl_s
        for session_id in [k for k, v in self._states.items() if v.sealed and v.last_seen_s < horizon]:
            del self._states[session_id]
