"""`Recorder`: reads topics beside the services under test, so that a test can wait for what it expects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from safactory.contracts.event import Event
from safactory.contracts.topics import TOPICS, Topic
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Delivery

E = TypeVar("E", bound=Event)


class Recorder:
    """All events of some topics, in the order in which they were read."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Condition()

    async def take(self, delivery: Delivery) -> None:
        """Remember one event."""
        async with self._changed:
            self.events.append(delivery.event)
            self._changed.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], count: int = 1, timeout_s: float = 20.0) -> list[E]:
        """Return at least `count` events of one class.

        Raises:
            AssertionError: they did not come in time.
        """
        async with self._changed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: len(self.of(kind)) >= count)
            except TimeoutError:
                seen = sorted({type(event).__name__ for event in self.events})
                raise AssertionError(f"{len(self.of(kind))} of {count} {kind.__name__}; saw {seen}") from None
        return self.of(kind)


@contextlib.asynccontextmanager
async def recording(bus: Bus, topics: Sequence[Topic] = TOPICS) -> AsyncIterator[Recorder]:
    """Yield a recorder of these topics, from their beginning."""
    recorder = Recorder()
    consumer = Consumer(bus, "recorder", topics, recorder.take, start="beginning")
    await consumer.start()
    try:
        yield recorder
    finally:
        await consumer.stop()
