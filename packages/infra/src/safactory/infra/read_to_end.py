"""`read_to_end`: topics from their beginning as far as they go now, for state that is a fold over them."""

from __future__ import annotations

from collections.abc import Sequence

from safactory.contracts.topics import Topic
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Handler


async def read_to_end(bus: Bus, group: str, topics: Sequence[Topic], handler: Handler) -> None:
    """Return when the handler has had every record that was there at the start; commits nothing."""
    consumer = Consumer(bus, group, topics, handler, start="beginning")
    await consumer.start()
    try:
        await consumer.caught_up()
    finally:
        await consumer.stop()
