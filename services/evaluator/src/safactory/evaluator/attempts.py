"""`Attempts`: joins the records of each attempt, from two topics in any order, until it can be scored.

An attempt is ready when its runner finished for a reason that is scored, the gateway sealed it, and every step up to
the seal is there. Its records stay uncommitted until its session ends or a newer attempt begins, so after a restart an
attempt is found whole again, or ended; scoring one twice repeats the same fact. What can never be scored is let go at
once: other endings, attempts without a model call, and those that stopped because their last model call failed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from safactory.contracts.endings import EndReason
from safactory.contracts.sessions import SessionEnded, SessionFinished, SessionQueued, SessionSealed
from safactory.contracts.steps import StepRecorded
from safactory.infra.health import counter, gauge

OPEN = gauge("evaluator_open_attempts", "Attempts whose records are held uncommitted")
CLOSED = counter("evaluator_closed_attempts", "Attempts whose records were let go, and why", "why")

CLOSED_SESSIONS_MAX = 100_000
"""Sessions remembered as over; a late record of an older one is held until the next start, which harms nothing."""


_BLAMED_ON_THE_MODEL = (EndReason.SUCCEEDED, EndReason.FAILED)
"""Outcomes that say nothing of the agent when its last model call failed; the scheduler runs such sessions again."""


class Hold(Protocol):
    """A record that can be kept uncommitted; `infra.consumer.Delivery` is one."""

    def hold(self) -> None:
        """Keep it uncommitted."""
        ...

    def release(self) -> None:
        """Let it be committed."""
        ...


@dataclass
class Attempt:
    """What has been read of one attempt."""

    session_id: str
    number: int
    """Counts from 1."""
    queued: SessionQueued | None = None
    finished: SessionFinished | None = None
    sealed: SessionSealed | None = None
    steps: dict[int, StepRecorded] = field(default_factory=dict)
    """By seq."""
    holds: list[Hold] = field(default_factory=list)
    over_at_s: float | None = None
    """Monotonic time at which both its runner and the gateway were done with it; None before."""

    @property
    def missing(self) -> list[str]:
        """Name what has not been read of an attempt that is over."""
        last_seq = self.sealed.last_seq if self.sealed else 0
        steps = [f"step {seq}" for seq in range(1, last_seq + 1) if seq not in self.steps]
        return [*([] if self.queued else ["session.queued"]), *steps]


class Attempts:
    """The newest attempt of each session that is not over."""

    def __init__(self) -> None:
        self._open: dict[str, Attempt] = {}
        self._over: dict[str, Attempt] = {}
        """Those among the open that wait to be given out."""
        self._closed: OrderedDict[str, int] = OrderedDict()
        """By session: the newest attempt that no longer matters."""

    def queued(self, event: SessionQueued, hold: Hold) -> None:
        """Begin a new attempt, which closes the older ones of its session."""
        if attempt := self._keep(event.session_id, event.attempt, hold):
            attempt.queued = event

    def finished(self, event: SessionFinished, hold: Hold) -> None:
        """Take the runner's outcome."""
        if not event.outcome.reason.scored:
            self._close(event.session_id, event.attempt, "not_scored")
        elif attempt := self._keep(event.session_id, event.attempt, hold):
            attempt.finished = event
            self._note_over(attempt)

    def sealed(self, event: SessionSealed, hold: Hold) -> None:
        """Learn how many steps there are."""
        if event.last_seq == 0:
            self._close(event.session_id, event.attempt, "empty")
        elif attempt := self._keep(event.session_id, event.attempt, hold):
            attempt.sealed = event
            self._note_over(attempt)

    def step(self, event: StepRecorded, hold: Hold) -> None:
        """Take a model call; one without a session is nobody's."""
        if event.session_id and (attempt := self._keep(event.session_id, event.attempt, hold)):
            attempt.steps[event.seq] = event

    def ended(self, event: SessionEnded) -> None:
        """Close a session for good."""
        self._close(event.session_id, event.attempt, "ended")

    def take_ready(self) -> list[Attempt]:
        """Give out, once, each attempt that can be scored."""
        return self._take(lambda attempt: not attempt.missing)

    def take_overdue(self, wait_s: float) -> list[Attempt]:
        """Give out, once, each attempt that has been over for so long and still lacks a record."""
        limit_s = time.monotonic() - wait_s
        return self._take(lambda attempt: attempt.over_at_s is not None and attempt.over_at_s <= limit_s)

    def is_open(self, attempt: Attempt) -> bool:
        """Whether an attempt that was given out still matters."""
        return self._open.get(attempt.session_id) is attempt

    def _keep(self, session_id: str, number: int, hold: Hold) -> Attempt | None:
        """Hold a record and return its attempt, or None when that attempt no longer matters."""
        if number <= self._closed.get(session_id, 0):
            return None
        attempt = self._open.get(session_id)
        if attempt is not None and number > attempt.number:
            self._close(session_id, attempt.number, "superseded")
            attempt = None
        if attempt is None:
            attempt = self._open[session_id] = Attempt(session_id, number)
            OPEN.set(len(self._open))
        elif number < attempt.number:
            return None
        hold.hold()
        attempt.holds.append(hold)
        return attempt

    def _note_over(self, attempt: Attempt) -> None:
        if not attempt.finished or not attempt.sealed or attempt.over_at_s is not None:
            return
        if attempt.sealed.last_error and attempt.finished.outcome.reason in _BLAMED_ON_THE_MODEL:
            self._close(attempt.session_id, attempt.number, "gateway_error")
        else:
            attempt.over_at_s = time.monotonic()
            self._over[attempt.session_id] = attempt

    def _take(self, wanted: Callable[[Attempt], bool]) -> list[Attempt]:
        taken = [attempt for attempt in self._over.values() if wanted(attempt)]
        for attempt in taken:
            del self._over[attempt.session_id]
        return taken

    def _close(self, session_id: str, number: int, why: str) -> None:
        self._closed[session_id] = max(number, self._closed.pop(session_id, 0))
        if len(self._closed) > CLOSED_SESSIONS_MAX:
            self._closed.popitem(last=False)
        attempt = self._open.get(session_id)
        if attempt is None or attempt.number > number:
            return
        del self._open[session_id]
        self._over.pop(session_id, None)
        for hold in attempt.holds:
            hold.release()
        OPEN.set(len(self._open))
        CLOSED.labels(why).inc()
