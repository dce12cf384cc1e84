"""`make_inbox()`: the consumer's handler, which gives each event to the module that is named after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from safactory.contracts.sessions import SessionEnded, SessionFinished, SessionQueued, SessionSealed
from safactory.contracts.steps import StepRecorded
from safactory.evaluator.attempts import Attempts
from safactory.evaluator.handlers import (
    session_ended,
    session_finished,
    session_queued,
    session_sealed,
    step_recorded,
)
from safactory.infra.consumer import Delivery


def make_inbox(attempts: Attempts, wake: Callable[[], None]) -> Callable[[Delivery], Awaitable[None]]:
    """Return a handler that joins every event and says so to `wake`."""

    async def inbox(delivery: Delivery) -> None:
        match delivery.event:
            case SessionQueued() as event:
                session_queued.handle(event, delivery, attempts)
            case SessionFinished() as event:
                session_finished.handle(event, delivery, attempts)
            case SessionSealed() as event:
                session_sealed.handle(event, delivery, attempts)
            case SessionEnded() as event:
                session_ended.handle(event, delivery, attempts)
            case StepRecorded() as event:
                step_recorded.handle(event, delivery, attempts)
            case _:
                return  # session.leased says nothing about a score
        wake()

    return inbox
