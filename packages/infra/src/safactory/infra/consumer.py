"""`Consumer`: read events and commit exactly what has been handled.

Partitions are assigned, not negotiated: replica r of n reads the partitions p with p % n == r, so there are no
rebalances and no commit for a partition that somebody else owns. The committed offset of a partition is its lowest
record that is not done; a record is done when its handler has returned, or, after `Delivery.hold()`, when
`Delivery.release()` is called. A handler failure that a retry can help blocks its partition and is retried without end;
any other goes to the dead-letter topic with its provenance, after a few tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Literal

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from safactory.contracts.errors import BusError, PoisonError, SafactoryError
from safactory.contracts.event import Event
from safactory.contracts.topics import Topic
from safactory.infra.bus import Bus, ensure_topics
from safactory.infra.health import counter, gauge
from safactory.infra.logs import log_context
from safactory.infra.record_reading import header, letter_of, read_record
from safactory.infra.tasks import cancelled, uncut
from safactory.infra.watermark import Watermark

logger = logging.getLogger(__name__)

HANDLED = counter("consumer_handled", "Records whose handler returned", "group", "topic")
RETRIED = counter("consumer_retried", "Handler failures that were tried again", "group", "topic")
DEAD = counter("consumer_dead_lettered", "Records that went to a dead-letter topic", "group", "topic")
LAG_S = gauge("consumer_lag_s", "Age of the newest record handled, when it was handled", "group", "topic")

GAPS = counter("consumer_gaps", "Gaps in offsets that were looked at again", "group", "topic")

CONNECT_S = 10.0
COMMIT_EVERY_S = 1.0
GAP_LOOKS = 5
LEAVE_S = 2.0
"""For each step of leaving a broker that may be gone."""
BACKOFF_MAX_S = 5.0

Handler = Callable[["Delivery"], Awaitable[None]]
Start = Literal["committed", "beginning"] | Mapping[tuple[str, int], int]
"""Where to begin: this group's committed offsets, the oldest record, or given next offsets by (topic, partition).

Only a reader that begins at its committed offsets commits; the others keep their place themselves."""


class Delivery:
    """One event on its way to a handler, with its place on the bus."""

    def __init__(self, event: Event, record: ConsumerRecord, watermark: Watermark, topic: str) -> None:
        self.event = event
        self.topic = topic
        """Name of the topic, without the bus's prefix."""
        self.partition: int = record.partition
        self.offset: int = record.offset
        self.timestamp_ms: int = record.timestamp
        self.record = record
        self._watermark = watermark
        self.held = False

    def hold(self) -> None:
        """Keep this record, and with it everything behind it, uncommitted until `release()`."""
        self.held = True

    def release(self) -> None:
        """Let this record be committed."""
        self.held = False
        self._watermark.done(self.offset)


class Consumer:
    """One process's reader of some topics."""

    def __init__(
        self,
        bus: Bus,
        group: str,
        topics: Sequence[Topic],
        handler: Handler,
        *,
        start: Start = "committed",
        replica: tuple[int, int] = (0, 1),
    ) -> None:
        self._bus = bus
        self._group = bus.settings.topic_prefix + group
        self._topics = {bus.settings.topic_prefix + topic.name: topic for topic in topics}
        self._handler = handler
        self._start = start
        self._commits = start == "committed"
        self._replica = replica
        self._marks: dict[TopicPartition, Watermark] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._looks: Counter[TopicPartition] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._caught_up = asyncio.Event()
        self._connected = False
        self._busy_s = time.monotonic()
        """When the last record came or was handled."""

    async def start(self) -> None:
        """Begin to read, in the background."""
        self._task = asyncio.create_task(self._run(), name=f"consumer-{self._group}")

    async def stop(self) -> None:
        """Stop reading and commit what is done."""
        await cancelled(self._task)

    async def caught_up(self) -> None:
        """Return when every record that was there at the start has been handled."""
        await self._caught_up.wait()

    async def quiet(self, quiet_s: float) -> None:
        """Return when no record has come for this long, or the broker is away."""
        while self._connected and (left_s := self._busy_s + quiet_s - time.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left_s)

    def check(self) -> None:
        """Return when the consumer reads.

        Raises:
            BusError: it does not, or is still reading what was there at the start.
        """
        if self._task is None or self._task.done() or not self._connected:
            raise BusError(f"consumer {self._group} is not connected to {self._bus.settings.servers}")
        if not self._caught_up.is_set():
            raise BusError(f"consumer {self._group} is still reading what was there at its start")

    def positions(self) -> dict[tuple[str, int], int]:
        """Return the lowest offset that is not done, by (topic without prefix, partition)."""
        return {(self._topics[tp.topic].name, tp.partition): mark.next for tp, mark in self._marks.items()}

    async def _run(self) -> None:
        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bus.settings.servers,
                group_id=self._group if self._commits else None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=self._bus.settings.fetch_wait_ms,
                max_partition_fetch_bytes=self._bus.settings.message_bytes_max * 4,
            )
            try:
                async with asyncio.timeout(CONNECT_S):
                    # Asked about a topic that is not there yet, the client waits 40 s for it to come.
                    await ensure_topics(self._bus.settings)
                    await uncut(consumer.start())
                await self._read(consumer)
            except (KafkaError, TimeoutError, OSError) as error:
                logger.info("consumer %s: broker at %s: %r", self._group, self._bus.settings.servers, error)
            finally:
                self._connected = False
                await self._leave(consumer)
            await asyncio.sleep(1.0)

    async def _leave(self, consumer: AIOKafkaConsumer) -> None:
        try:
            await _bounded(self._commit_done(consumer))
        finally:
            await _bounded(consumer.stop())

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async with asyncio.timeout(CONNECT_S):
            ends = await self._assign(consumer)
        self._connected = True
        committed_at = time.monotonic()
        while True:
            batches = await consumer.getmany(
                timeout_ms=self._bus.settings.poll_ms, max_records=self._bus.settings.fetch_max
            )
            for tp, records in batches.items():
                for record in self._without_gap(consumer, tp, records):
                    await self._handle(tp, record)
                    self._busy_s = time.monotonic()
            # An embedded broker reports the start of its last batch as the end, so an empty fetch must agree.
            if not batches and not self._caught_up.is_set() and await self._reached(consumer, ends):
                self._caught_up.set()
            if time.monotonic() - committed_at >= COMMIT_EVERY_S:
                await self._commit_done(consumer)
                committed_at = time.monotonic()

    def _without_gap(
        self, consumer: AIOKafkaConsumer, tp: TopicPartition, records: list[ConsumerRecord]
    ) -> list[ConsumerRecord]:
        """Return the records up to a gap in their offsets, and fetch the rest again.

        An embedded broker may pass over records that are being written; a second look finds them. A gap that stays,
        as compaction and transactions leave them, is accepted.
        """
        expected = self._marks[tp].reached
        for number, record in enumerate(records):
            if record.offset > expected and self._looks[tp] < GAP_LOOKS:
                self._looks[tp] += 1
                GAPS.labels(self._group, self._topics[tp.topic].name).inc()
                consumer.seek(tp, expected)
                return records[:number]
            expected = record.offset + 1
        self._looks[tp] = 0
        return records

    async def _assign(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        number, count = self._replica
        tps = [
            TopicPartition(name, partition)
            for name, topic in self._topics.items()
            for partition in range(self._bus.settings.partitions_of(topic))
            if topic.partitions == 1 or partition % count == number
        ]
        # Asked before the first fetch: behind a fetch that waits for records, every answer waits too.
        beginnings: dict[TopicPartition, int] = await consumer.beginning_offsets(tps)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(tps)
        consumer.assign(tps)
        for tp in tps:
            offset = max(beginnings[tp], await self._wanted_offset(consumer, tp))
            self._marks[tp] = Watermark(offset)
            consumer.seek(tp, offset)
        return ends

    async def _wanted_offset(self, consumer: AIOKafkaConsumer, tp: TopicPartition) -> int:
        if tp in self._marks:
            return self._marks[tp].next
        if self._start == "beginning":
            return 0
        if self._start == "committed":
            return await consumer.committed(tp) or 0
        return self._start.get((self._topics[tp.topic].name, tp.partition), 0)

    async def _reached(self, consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
        for tp, end in ends.items():
            if await consumer.position(tp) < end:
                return False
        return True

    async def _handle(self, tp: TopicPartition, record: ConsumerRecord) -> None:
        topic = self._topics[tp.topic]
        key = (record.key or b"").decode(errors="replace")
        with log_context(event_id=header(record, "ce_id"), **{topic.key: key}):
            await self._handle_until_done(self._marks[tp], record, topic.name)

    async def _handle_until_done(self, mark: Watermark, record: ConsumerRecord, topic: str) -> None:
        mark.begin(record.offset)
        failures = 0
        while True:
            try:
                delivery = Delivery(read_record(record, topic), record, mark, topic)
                await self._handler(delivery)
            except Exception as error:  # noqa: BLE001  # whatever escapes a handler is classified here, once
                failures += 1
                retry = isinstance(error, SafactoryError) and error.retryable
                poison = isinstance(error, PoisonError)
                if not retry and (poison or failures >= self._bus.settings.handler_attempts):
                    await self._bury(record, topic, error, failures)
                    mark.done(record.offset)
                    return
                RETRIED.labels(self._group, topic).inc()
                logger.warning("handler failed on %s/%s@%s: %r", topic, record.partition, record.offset, error)
                await asyncio.sleep(min(BACKOFF_MAX_S, 0.1 * 2 ** min(failures, 10)))
            else:
                HANDLED.labels(self._group, topic).inc()
                LAG_S.labels(self._group, topic).set(max(0.0, time.time() - record.timestamp / 1000))
                if not delivery.held:
                    mark.done(record.offset)
                return

    async def _bury(self, record: ConsumerRecord, topic: str, error: Exception, attempts: int) -> None:
        logger.error("dead-lettering %s/%s@%s: %r", topic, record.partition, record.offset, error)
        letter = letter_of(record, topic, self._group, error, attempts)
        while True:  # a record may leave its topic only when the dead-letter topic has it
            try:
                await self._bus.send(letter)
            except BusError as failure:
                logger.error("dead-letter topic: %s", failure)
                await asyncio.sleep(BACKOFF_MAX_S)
            else:
                DEAD.labels(self._group, topic).inc()
                return

    async def _commit_done(self, consumer: AIOKafkaConsumer) -> None:
        if not self._commits:
            return
        moved = {tp: mark.next for tp, mark in self._marks.items() if mark.next != self._committed.get(tp, 0)}
        if moved:
            await consumer.commit(moved)
            self._committed.update(moved)


async def _bounded(step: Coroutine[None, None, None]) -> None:
    with contextlib.suppress(KafkaError, TimeoutError, OSError):
        async with asyncio.timeout(LEAVE_S):
            await step
