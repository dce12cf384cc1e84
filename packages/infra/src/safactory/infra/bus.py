"""`Bus`: publish events to a Kafka-protocol broker.

A publish has returned only when the event is durable: acknowledged by all in-sync replicas, or, when the broker is
away for longer than `publish_timeout_s`, written to the local outbox, which is drained in order as soon as the broker
is back. Nothing is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError, for_code

from safactory.contracts.errors import BusError, PoisonError
from safactory.contracts.event import Event
from safactory.contracts.topics import TOPIC_OF, TOPICS, Topic, key_of
from safactory.infra.admin import admin_client
from safactory.infra.health import counter, gauge
from safactory.infra.outbox import Outbox, Record
from safactory.infra.settings import BusSettings
from safactory.infra.tasks import cancelled, uncut

logger = logging.getLogger(__name__)

PUBLISHED = counter("bus_published", "Events that the broker acknowledged", "type")
SPILLED = counter("bus_spilled", "Events that went to the write-ahead file, because the broker was away", "type")
PENDING = gauge("bus_outbox_pending", "Events in the write-ahead file")

RETRY_S = 0.5
"""Between two looks at a broker that is away."""
TOPIC_EXISTS = 36


def record_of(event: Event, source: str, settings: BusSettings) -> Record:
    """Return an event as a record in CloudEvents binary mode."""
    headers = {
        "ce_specversion": "1.0",
        "ce_id": event.event_id,
        "ce_type": event.type,
        "ce_source": source,
        "ce_time": event.occurred_at.isoformat(),
        "content-type": "application/json",
    }
    seq = getattr(event, "seq", None)
    if seq is not None:
        headers["ce_seq"] = str(seq)
    topic = settings.topic_prefix + TOPIC_OF[type(event)].name
    return Record(topic, key_of(event).encode(), event.to_json(), tuple((k, v.encode()) for k, v in headers.items()))


class Bus:
    """One process's connection for publishing."""

    def __init__(self, settings: BusSettings, source: str) -> None:
        self.settings = settings
        self.source = source
        self._outbox = Outbox(settings.wal_dir / f"{source}.wal")
        self._producer: AIOKafkaProducer | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._up = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether the broker took the last record that it was given and nothing waits in the outbox."""
        return self._up.is_set() and not self._outbox

    async def start(self) -> None:
        """Connect in the background: a broker that is away delays nobody."""
        PENDING.set(len(self._outbox))
        self._keeper = asyncio.create_task(self._keep(), name="bus-keeper")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.publish_timeout_s):
                await self._up.wait()

    async def stop(self) -> None:
        """Disconnect; what the broker has not taken stays in the outbox for the next start."""
        await cancelled(self._keeper)
        await self._disconnect()

    def check(self) -> None:
        """Return when the broker is there.

        Raises:
            BusError: it is not, or the outbox is still being drained.
        """
        if not self._up.is_set():
            raise BusError(f"no broker at {self.settings.servers}")
        if self._outbox:
            raise BusError(f"{len(self._outbox)} events wait in the write-ahead file")

    def record(self, event: Event) -> Record:
        """Return an event as it will be published.

        Raises:
            PoisonError: it is larger than a broker takes, and would block all that comes behind it.
        """
        record = record_of(event, self.source, self.settings)
        if len(record.value) > self.settings.message_bytes_max:
            limit = self.settings.message_bytes_max
            raise PoisonError(f"{event.type} has {len(record.value)} bytes, over BUS_MESSAGE_BYTES_MAX ({limit})")
        return record

    async def publish(self, event: Event) -> None:
        """Make an event durable.

        Raises:
            BusError: neither the broker nor the local disk took it.
            PoisonError: it is larger than a broker takes.
        """
        record = self.record(event)
        # Behind a waiting record no later one may overtake it: order per key is a promise.
        if not self._outbox and self._up.is_set():
            try:
                await self._send(record)
            except (KafkaError, TimeoutError) as error:
                logger.warning("broker at %s did not take %s: %r", self.settings.servers, event.type, error)
                self._up.clear()
            else:
                PUBLISHED.labels(event.type).inc()
                return
        self._outbox.append(record)
        SPILLED.labels(event.type).inc()
        PENDING.set(len(self._outbox))

    async def send(self, record: Record) -> None:
        """Give a ready-made record to the broker, without the outbox: for dead letters and replays.

        Raises:
            BusError: the broker did not take it in time.
        """
        try:
            await self._send(record)
        except (KafkaError, TimeoutError) as error:
            raise BusError(f"broker at {self.settings.servers} did not take {record.topic}: {error!r}") from error

    async def _send(self, record: Record) -> None:
        if self._producer is None:
            raise TimeoutError("not connected")
        async with asyncio.timeout(self.settings.publish_timeout_s):
            await self._producer.send_and_wait(
                record.topic, key=record.key, value=record.value, headers=list(record.headers)
            )

    async def _keep(self) -> None:
        while True:
            try:
                if self._producer is None:
                    await self._connect()
                await self._drain()
                self._up.set()
            except (KafkaError, TimeoutError, OSError) as error:
                logger.debug("broker at %s is away: %r", self.settings.servers, error)
                self._up.clear()
                await self._disconnect()
            await asyncio.sleep(RETRY_S)

    async def _drain(self) -> None:
        while self._outbox:
            await self._send(self._outbox.first())
            self._outbox.remove_first()
            PENDING.set(len(self._outbox))

    async def _connect(self) -> None:
        async with asyncio.timeout(10):
            await ensure_topics(self.settings)
        idempotent = self.settings.idempotence != "off"
        try:
            self._producer = await self._start_producer(idempotent=idempotent)
        except KafkaError:
            if self.settings.idempotence == "on" or not idempotent:
                raise
            logger.info("broker at %s has no idempotent producer: using acks=all alone", self.settings.servers)
            self._producer = await self._start_producer(idempotent=False)

    async def _start_producer(self, *, idempotent: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.servers,
            acks="all",
            enable_idempotence=idempotent,
            linger_ms=self.settings.linger_ms,
            max_request_size=self.settings.message_bytes_max * 2,
        )
        try:
            async with asyncio.timeout(10):
                await producer.start()
        except BaseException:
            await _stop(producer)
            raise
        return producer

    async def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)


async def _stop(producer: AIOKafkaProducer) -> None:
    # stop() waits for a broker that is away: give it a bound, and its tasks go with the event loop.
    with contextlib.suppress(KafkaError, TimeoutError, OSError):
        async with asyncio.timeout(2):
            await producer.stop()


async def ensure_topics(settings: BusSettings) -> None:
    """Create the topics that are not there, and their dead-letter siblings.

    Raises:
        KafkaError: the broker refused or is away.
    """
    await uncut(_ensure_topics(settings))


async def _ensure_topics(settings: BusSettings) -> None:
    async with admin_client(settings.servers) as admin:
        present = set(await admin.list_topics())
        wanted = [new for topic in TOPICS for new in _new_topics(topic, settings)]
        missing = [topic for topic in wanted if topic.name not in present]
        if not missing:
            return
        response = await admin.create_topics(missing)
        for name, code, *_ in response.topic_errors:
            if code not in (0, TOPIC_EXISTS):
                raise for_code(code)(f"create topic {name}")


def _new_topics(topic: Topic, settings: BusSettings) -> list[NewTopic]:
    config = {"cleanup.policy": "compact"} if topic.compacted else {"retention.ms": "-1"}
    replication = settings.replication_factor
    return [
        NewTopic(settings.topic_prefix + topic.name, settings.partitions_of(topic), replication, topic_configs=config),
        NewTopic(settings.topic_prefix + topic.dead_letters.name, 1, replication),
    ]


async def cluster_id(settings: BusSettings) -> str:
    """Return the broker's cluster id, which tells one life of an embedded broker from the next.

    Raises:
        KafkaError: the broker is away.
    """
    async with admin_client(settings.servers) as admin:
        described = await admin.describe_cluster()
    return str(described["cluster_id"]) + settings.topic_prefix
