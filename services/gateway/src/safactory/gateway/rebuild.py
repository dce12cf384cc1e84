"""Rebuild the session book from the bus, so that a restart forgets neither step numbers nor budgets."""

from __future__ import annotations

from safactory.contracts.sessions import SessionSealed
from safactory.contracts.steps import StepRecorded
from safactory.contracts.topics import SESSION, STEP
from safactory.gateway.session_book import SessionBook
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Delivery


async def rebuild(bus: Bus, book: SessionBook) -> None:
    """Read the step and session topics as far as they go now."""

    async def apply(delivery: Delivery) -> None:
        if isinstance(delivery.event, StepRecorded):
            book.replay_step(delivery.event)
        elif isinstance(delivery.event, SessionSealed):
            book.replay_seal(delivery.event)

    consumer = Consumer(bus, "gateway-rebuild", [STEP, SESSION], apply, start="beginning")
    await consumer.start()
    try:
        await consumer.caught_up()
    finally:
        await consumer.stop()
