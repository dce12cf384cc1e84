"""`weights.published`: take a replica that failed a push out of its route, and put back one that took it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from faststream.kafka import KafkaBroker, KafkaMessage

from safactory.contracts.topics import WEIGHTS
from safactory.contracts.weights import WeightsPublished
from safactory.gateway.route_table import RouteTable
from safactory.infra.bus import ensure_topics
from safactory.infra.settings import BusSettings
from safactory.infra.tasks import cancelled

logger = logging.getLogger(__name__)

RETRY_S = 1.0
ATTEMPT_S = 10.0
"""The longest that a stop waits for a connection attempt under way."""


class WeightsSubscription:
    """Reads the whole compacted topic without a group: every gateway must know every replica's state.

    FastStream is enough here: there is no offset to keep, and applying an event twice changes nothing.
    """

    def __init__(self, settings: BusSettings, routes: RouteTable) -> None:
        self._settings = settings
        self._broker = KafkaBroker(settings.servers, logger=None)
        self._routes = routes
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        topic = settings.topic_prefix + WEIGHTS.name
        self._broker.subscriber(topic, auto_offset_reset="earliest")(self.handle)

    async def start(self) -> None:
        """Begin to read in the background: a broker that is away delays nobody."""
        self._task = asyncio.create_task(self._connect(), name="weights-subscription")

    async def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._task:
            # A connection attempt that is cut leaves its socket open: let it come through or fail.
            await asyncio.wait({self._task}, timeout=ATTEMPT_S)
        await cancelled(self._task)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await self._broker.stop()

    async def handle(self, message: KafkaMessage) -> None:
        """Apply one event; the newest state of each replica wins."""
        self._routes.weights_published(WeightsPublished.from_json(message.body))

    async def _connect(self) -> None:
        while not self._stopping.is_set():
            try:
                # A topic that comes after its subscriber is noticed minutes later.
                await ensure_topics(self._settings)
                await self._broker.start()
            except Exception as error:  # noqa: BLE001  # every client failure here means: the broker is not there yet
                logger.info("weights subscription waits for the broker: %r", error)
                await self._pause()
            else:
                return

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await self._stopping.wait()
