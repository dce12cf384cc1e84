"""`Ingest`: every record of every topic into the archive, in batches, with a ledger of what is in.

Order of a flush: rows, then the ledger. A crash in between inserts the same rows again, which their identity makes
harmless, and the ledger has neither gap nor overlap. Reading begins where the ledger ends, so nothing depends on
offsets that a broker keeps. While the archive is away nothing is lost and nothing more is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable

from safactory.contracts.errors import ArchiveError
from safactory.contracts.sessions import SessionEnded
from safactory.contracts.steps import StepRecorded
from safactory.dataelf.rows import Row, Source, message_rows, rows_of
from safactory.dataelf.settings import DataelfSettings
from safactory.infra.archive import Archive
from safactory.infra.consumer import Delivery
from safactory.infra.health import counter, gauge
from safactory.infra.objects import Objects
from safactory.infra.payloads import unpack

logger = logging.getLogger(__name__)

ROWS = counter("dataelf_rows", "Rows inserted", "table")
FLUSH_S = gauge("dataelf_flush_s", "Duration of the last flush")
BUFFERED = gauge("dataelf_buffered_rows", "Rows that wait for their insert")

RETRY_S = 1.0

Place = tuple[str, int]
AfterFlush = Callable[[list[SessionEnded]], Awaitable[None]]


class Ingest:
    """Buffers rows and inserts them."""

    def __init__(
        self, settings: DataelfSettings, archive: Archive, objects: Objects, source: Source, after_flush: AfterFlush
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._objects = objects
        self._source = source
        self._after_flush = after_flush
        self._next: dict[Place, int] = {}
        """The ledger's end, by topic and partition."""
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._deliveries: list[Delivery] = []
        self._ended: list[SessionEnded] = []
        self._room = asyncio.Event()
        self._room.set()
        self._full = asyncio.Event()
        self._stopping = False

    @property
    def buffered(self) -> int:
        """Rows that wait."""
        return sum(len(rows) for rows in self._rows.values())

    async def resume(self) -> dict[Place, int]:
        """Return where to read on, from the ledger."""
        rows = await self._archive.query(
            "SELECT topic, partition, max(next) AS next FROM ingest_ledger WHERE bus = {bus:String} "
            "GROUP BY topic, partition",
            {"bus": self._source.bus},
        )
        self._next = {(str(row["topic"]), int(str(row["partition"]))): int(str(row["next"])) for row in rows}
        return dict(self._next)

    async def take(self, delivery: Delivery) -> None:
        """Buffer one record; waits while the buffer is full.

        Raises:
            PoisonError: the record has no place in the archive.
        """
        await self._room.wait()
        event = delivery.event
        rows = rows_of(event, self._source)
        messages: list[Row] = []
        if isinstance(event, StepRecorded):
            messages = message_rows(await unpack(self._objects, event.messages), self._source)
        delivery.hold()
        for table, found in rows.items():
            self._rows[table] += found
        self._rows["messages"] += messages
        self._deliveries.append(delivery)
        if isinstance(event, SessionEnded):
            self._ended.append(event)
        self._signal()

    async def run(self) -> None:
        """Flush whenever the time or the buffer says so, until `stop`, and then once more."""
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.flush_interval_s):
                    await self._full.wait()
            await self._flush()
        await self._flush()

    def stop(self) -> None:
        """Let `run` return; cancelled in a flush, it must not flush again: the ledger would span what was lost."""
        self._stopping = True
        self._full.set()

    async def _flush(self) -> None:
        rows, self._rows = self._rows, defaultdict(list)
        deliveries, self._deliveries = self._deliveries, []
        ended, self._ended = self._ended, []
        self._signal()
        started_s = time.monotonic()
        for table, found in rows.items():
            await self._insert(table, found)
        await self._insert("ingest_ledger", self._ledger(deliveries))
        for delivery in deliveries:
            delivery.release()
        if deliveries:
            FLUSH_S.set(time.monotonic() - started_s)
        await self._after_flush(ended)

    def _ledger(self, deliveries: list[Delivery]) -> list[Row]:
        spans: dict[Place, list[int]] = defaultdict(list)
        for delivery in deliveries:
            spans[delivery.topic, delivery.partition].append(delivery.offset)
        found: list[Row] = []
        for (topic, partition), offsets in spans.items():
            # What a broker has dropped by age before the first look is not missing; what comes again counts once.
            first = self._next.get((topic, partition), min(offsets))
            new = {offset for offset in offsets if offset >= first}
            if not new:
                continue
            end = self._next[topic, partition] = max(new) + 1
            place = {"bus": self._source.bus, "topic": topic, "partition": partition}
            found.append(place | {"first": first, "next": end, "rows": len(new)})
        return found

    async def _insert(self, table: str, rows: list[Row]) -> None:
        while rows:
            try:
                await self._archive.insert(table, rows)
            except ArchiveError as error:
                logger.warning("archive did not take %s rows for %s: %s", len(rows), table, error)
                await asyncio.sleep(RETRY_S)
            else:
                ROWS.labels(table).inc(len(rows))
                return

    def _signal(self) -> None:
        buffered = self.buffered
        BUFFERED.set(buffered)
        full = buffered >= self._settings.flush_rows or self._stopping
        (self._full.set if full else self._full.clear)()
        (self._room.clear if buffered >= self._settings.buffer_rows_max else self._room.set)()
