"""Rebuild the session book from the bus, so that a restart forgets neither step numbers nor budgets."""

from __future__ import annotations

from safactory.contracts.sessions import SessionSealed
from safactory.contracts.steps import StepRecorded
from safactory.contracts.topics import SESSION, STEP
from safactory.gateway.session_book import SessionBook
from safactory.infra.bus import Bus
from safactory.infra.consumer import Delivery
from safactory.infra.read_to_end import read_to_end


async def rebuild(bus: Bus, book: SessionBook) -> None:
    """Read the step and session topics as far as they go now."""

    async def apply(delivery: Delivery) -> None:
        if isinstance(delivery.event, StepRecorded):
            book.replay_step(delivery.event)
        elif isinstance(delivery.event, SessionSealed):
            book.replay_seal(delivery.event)

    await read_to_end(bus, "gateway-rebuild", [STEP, SESSION], apply)
