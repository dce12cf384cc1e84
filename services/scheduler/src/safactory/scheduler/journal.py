"""`Journal`: the one way by which the scheduler's state changes: apply an event, and make it durable."""

from __future__ import annotations

import asyncio

from safactory.contracts.event import Event
from safactory.contracts.sessions import SessionQueued
from safactory.infra.bus import Bus
from safactory.scheduler.job_book import JobBook


class Journal:
    """The book and the bus that it is a fold over."""

    def __init__(self, book: JobBook, bus: Bus) -> None:
        self.book = book
        self._bus = bus
        self.queued = asyncio.Event()
        """Set whenever there may be something new for a worker to take."""

    async def record(self, *events: Event) -> None:
        """Apply events at once, so that nobody acts on a stale book, and return when they are durable.

        Raises:
            BusError: neither the broker nor the disk took them: this process must not go on.
            PoisonError: one is too large to publish; none was applied.
        """
        for event in events:
            self._bus.record(event)
        for event in events:
            self.book.apply(event)
        if any(isinstance(event, SessionQueued) for event in events):
            self.queued.set()
        await asyncio.gather(*(self._bus.publish(event) for event in events))
