"""`House`: the parts of one dataelf, put together once the broker and the archive are there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiokafka.errors import KafkaError

from safactory.contracts.errors import ArchiveError, BusError
from safactory.contracts.topics import TOPICS
from safactory.dataelf.group_assembly import GroupAssembly
from safactory.dataelf.ingest import Ingest
from safactory.dataelf.rows import Source
from safactory.dataelf.settings import DataelfSettings
from safactory.infra.archive import Archive
from safactory.infra.bus import Bus, cluster_id
from safactory.infra.consumer import Consumer
from safactory.infra.migrations import migrate
from safactory.infra.objects import Objects
from safactory.infra.settings import ArchiveSettings
from safactory.infra.tasks import cancelled

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
RETRY_S = 1.0
QUIET_S = 0.6
"""At the stop: nothing has come for this long, so everything on the bus has been read."""
DRAIN_S = 5.0
"""The longest that the stop reads on; an embedded broker forgets what nobody has read by then."""
STOP_S = 5.0
"""For the last batch; what the archive does not take by then is read again at the next start."""


class House:
    """Archive, objects, and what reads the bus into them."""

    def __init__(
        self, settings: DataelfSettings, archive_settings: ArchiveSettings, bus: Bus, objects: Objects
    ) -> None:
        self._settings = settings
        self._tenant = archive_settings.tenant
        self._bus = bus
        self.objects = objects
        self.archive = Archive(archive_settings)
        self.bus_id = ""
        self._consumer: Consumer | None = None
        self._ingest: Ingest | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, in the background: what is away at the start is waited for."""
        await self._bus.start()
        self._task = asyncio.create_task(self._live(), name="dataelf")

    async def stop(self) -> None:
        """Read to the end of what was written, insert what is buffered, close."""
        if self._consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._consumer.quiet(QUIET_S)
            await self._consumer.stop()
        if self._ingest and self._task:
            self._ingest.stop()
            await asyncio.wait({self._task}, timeout=STOP_S)
        await cancelled(self._task)
        await self._bus.stop()
        await self.archive.close()

    def check(self) -> None:
        """Return when records are being read.

        Raises:
            BusError: not yet.
        """
        if self._task is not None and self._task.done():
            raise BusError(f"ingest ended: {self._task.exception()!r}")
        if self._consumer is None:
            raise BusError("the archive or the broker is not there yet")
        self._consumer.check()

    async def _live(self) -> None:
        await self._until(self.archive.open)
        await self._until(self._migrate)
        await self._until(self._know_bus)
        source = Source(self._tenant, self.bus_id)
        keep = self._settings.keep_equal_rewards
        assembly = GroupAssembly(self.archive, self.objects, self._bus, source, keep_equal_rewards=keep)
        ingest = Ingest(self._settings, self.archive, self.objects, source, assembly.after_flush)
        await assembly.resume()
        topics = [*TOPICS, *(topic.dead_letters for topic in TOPICS)]
        self._consumer = Consumer(self._bus, "dataelf", topics, ingest.take, start=await ingest.resume())
        self._ingest = ingest
        await self._consumer.start()
        await ingest.run()

    async def _migrate(self) -> None:
        for name in await migrate(self.archive, MIGRATIONS):
            logger.info("applied %s", name)

    async def _know_bus(self) -> None:
        self.bus_id = await cluster_id(self._bus.settings)

    async def _until(self, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await action()
            except (ArchiveError, KafkaError, OSError) as error:
                logger.warning("waiting: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return
