"""Reading: what is committed, what is tried again, and what goes to the dead letters, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from safactory.contracts.dead_letters import DeadLetter
from safactory.contracts.errors import BusError, ServiceError
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.steps import StepRecorded
from safactory.contracts.topics import METRIC, STEP
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Delivery, Handler, Start
from safactory.infra.outbox import Record
from safactory.infra.settings import BusSettings
from safactory.testkit import builders
from safactory.testkit.ports import free_port
from safactory.testkit.recorder import recording

GROUP = "reader"


class Reader:
    """A handler that remembers, and fails as it is told to."""

    def __init__(self, fail: Callable[[int], Exception | None] = lambda step: None) -> None:
        self.steps: list[int] = []
        self.deliveries: dict[int, Delivery] = {}
        self.held: set[int] = set()
        self._fail = fail

    async def __call__(self, delivery: Delivery) -> None:
        assert isinstance(delivery.event, MetricsReported)
        step = delivery.event.step
        self.steps.append(step)
        self.deliveries[step] = delivery
        error = self._fail(step)
        if error is not None:
            raise error
        if step in self.held:
            delivery.hold()

    async def wait_for(self, count: int) -> list[int]:
        async with asyncio.timeout(15):
            while len(self.steps) < count:
                await asyncio.sleep(0.02)
        return self.steps


@contextlib.asynccontextmanager
async def consuming(bus: Bus, handler: Handler, start: Start = "committed") -> AsyncIterator[Consumer]:
    consumer = Consumer(bus, GROUP, [METRIC], handler, start=start)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def publish(bus: Bus, *steps: int) -> None:
    for step in steps:
        await bus.publish(builders.a_metrics_reported(step=step))


async def committed(bus: Bus) -> int:
    prefix = bus.settings.topic_prefix
    client = AIOKafkaConsumer(bootstrap_servers=bus.settings.servers, group_id=prefix + GROUP, enable_auto_commit=False)
    await client.start()
    try:
        return await client.committed(TopicPartition(prefix + METRIC.name, 0)) or 0
    finally:
        await client.stop()


async def dead_letters(bus: Bus, count: int) -> list[DeadLetter]:
    async with recording(bus, [METRIC.dead_letters]) as recorder:
        return await recorder.wait_for(DeadLetter, count)


async def test_records_are_handled_in_order_and_committed_behind_the_last(bus: Bus) -> None:
    reader = Reader()
    async with consuming(bus, reader) as consumer:
        await publish(bus, *range(20))
        assert await reader.wait_for(20) == list(range(20))
        assert consumer.positions() == {(METRIC.name, 0): 20}
    assert await committed(bus) == 20


async def test_a_restart_goes_on_behind_what_was_committed(bus: Bus) -> None:
    first, second = Reader(), Reader()
    await publish(bus, 0, 1, 2)
    async with consuming(bus, first):
        await first.wait_for(3)
    await publish(bus, 3, 4)
    async with consuming(bus, second):
        assert await second.wait_for(2) == [3, 4]


async def test_a_held_record_keeps_all_behind_it_uncommitted_until_it_is_released(bus: Bus) -> None:
    first, second = Reader(), Reader()
    first.held = {1, 3}
    await publish(bus, *range(5))
    async with consuming(bus, first) as consumer:
        await first.wait_for(5)
        assert consumer.positions() == {(METRIC.name, 0): 1}
        first.deliveries[3].release()
        assert consumer.positions() == {(METRIC.name, 0): 1}, "done out of order"
    assert await committed(bus) == 1
    async with consuming(bus, second) as consumer:
        assert await second.wait_for(4) == [1, 2, 3, 4]
        assert consumer.positions() == {(METRIC.name, 0): 5}
    assert await committed(bus) == 5


async def test_a_released_record_is_committed_while_reading_goes_on(bus: Bus) -> None:
    reader = Reader()
    reader.held = {0}
    await publish(bus, 0, 1)
    async with consuming(bus, reader):
        await reader.wait_for(2)
        reader.deliveries[0].release()
        async with asyncio.timeout(10):
            while await committed(bus) != 2:
                await asyncio.sleep(0.1)


async def test_a_failure_that_a_retry_can_help_blocks_its_partition_until_it_is_over(bus: Bus) -> None:
    failures = iter([ServiceError("away")] * (bus.settings.handler_attempts + 1))
    reader = Reader(lambda step: next(failures, None) if step == 1 else None)
    await publish(bus, 0, 1, 2)
    async with consuming(bus, reader):
        tries = bus.settings.handler_attempts + 2
        assert await reader.wait_for(tries + 2) == [0, *[1] * tries, 2]
    assert await committed(bus) == 3


async def test_a_restart_in_the_middle_of_a_failure_tries_the_record_again(bus: Bus) -> None:
    first, second = Reader(lambda step: ServiceError("away") if step == 1 else None), Reader()
    await publish(bus, 0, 1, 2)
    async with consuming(bus, first):
        await first.wait_for(3)
    assert await committed(bus) == 1
    async with consuming(bus, second):
        assert await second.wait_for(2) == [1, 2]


async def test_a_bug_in_a_handler_is_tried_a_few_times_and_then_dead_lettered_with_its_provenance(bus: Bus) -> None:
    reader = Reader(lambda step: ValueError("a bug — ünd\udc80 more") if step == 1 else None)
    await publish(bus, 0, 1, 2)
    async with consuming(bus, reader):
        assert await reader.wait_for(5) == [0, 1, 1, 1, 2]
    (letter,) = await dead_letters(bus, 1)
    assert (letter.topic, letter.partition, letter.offset, letter.attempts) == (METRIC.name, 0, 1, 3)
    assert letter.group == bus.settings.topic_prefix + GROUP
    assert (letter.kind, letter.key) == ("metrics.reported", builders.JOB)
    assert letter.error.startswith("ValueError: a bug — ünd")
    assert MetricsReported.from_json(letter.value.encode()).step == 1
    assert await committed(bus) == 3


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (b"metrics.of_tomorrow", b"{}", "unknown event type 'metrics.of_tomorrow'"),
        (b"", b"hello", "unknown event type ''"),
        (b"metrics.reported", b"hello", "not a valid metrics.reported"),
        (b"metrics.reported", b"\xff\xfe", "not a valid metrics.reported"),
        (b"metrics.reported", b"", "not a valid metrics.reported"),
        (b"metrics.reported", b'{"run_id": "r"}', "not a valid metrics.reported"),
        (b"\xff", b"{}", "unknown event type"),
    ],
)
async def test_poison_goes_to_the_dead_letters_at_once_and_reading_goes_on(
    bus: Bus, kind: bytes, value: bytes, error: str
) -> None:
    topic = bus.settings.topic_prefix + METRIC.name
    await bus.send(Record(topic, b"key", value, (("ce_type", kind), ("ce_id", b"\xff"))))
    await publish(bus, 7)
    reader = Reader()
    async with consuming(bus, reader):
        assert await reader.wait_for(1) == [7]
    (letter,) = await dead_letters(bus, 1)
    assert (letter.offset, letter.attempts, letter.key) == (0, 1, "key")
    assert error in letter.error
    assert letter.value == value.decode(errors="replace")


async def test_a_reader_from_the_beginning_commits_nothing(bus: Bus) -> None:
    await publish(bus, 0, 1)
    for _ in range(2):
        reader = Reader()
        async with consuming(bus, reader, "beginning") as consumer:
            assert await reader.wait_for(2) == [0, 1]
            await consumer.caught_up()
            consumer.check()
    assert await committed(bus) == 0


async def test_a_reader_that_keeps_its_own_place_begins_there(bus: Bus) -> None:
    await publish(bus, *range(5))
    reader = Reader()
    async with consuming(bus, reader, {(METRIC.name, 0): 3}) as consumer:
        assert await reader.wait_for(2) == [3, 4]
        await consumer.caught_up()
    assert await committed(bus) == 0


async def test_replicas_share_the_partitions_without_overlap(bus: Bus) -> None:
    sessions = [f"session-{number}" for number in range(40)]
    for session_id in sessions:
        await bus.publish(builders.a_step_recorded(session_id=session_id))
    seen: list[list[str]] = [[], []]
    partitions: list[set[int]] = [set(), set()]

    def remember(number: int) -> Handler:
        async def handle(delivery: Delivery) -> None:
            assert isinstance(delivery.event, StepRecorded)
            seen[number].append(delivery.event.session_id)
            partitions[number].add(delivery.partition)

        return handle

    readers = [Consumer(bus, GROUP, [STEP], remember(number), replica=(number, 2)) for number in range(2)]
    for reader in readers:
        await reader.start()
    async with asyncio.timeout(15):
        for reader in readers:
            await reader.caught_up()
    for reader in readers:
        await reader.stop()
    assert sorted(seen[0] + seen[1]) == sorted(sessions)
    assert partitions == [{0, 2, 4}, {1, 3, 5}]


async def test_a_reader_that_comes_before_the_topics_waits_for_nobody(bus_settings: BusSettings) -> None:
    bus, reader = Bus(bus_settings, "test"), Reader()
    async with consuming(bus, reader, "beginning") as consumer:
        async with asyncio.timeout(5):
            await consumer.caught_up()
        await bus.start()
        await publish(bus, 1)
        assert await reader.wait_for(1) == [1]
    await bus.stop()


async def test_a_consumer_without_a_broker_says_so_and_stops_in_bounded_time(bus: Bus) -> None:
    away = Bus(bus.settings.model_copy(update={"servers": f"127.0.0.1:{free_port()}"}), "away")
    async with consuming(away, Reader()) as consumer:
        await asyncio.sleep(0.2)
        with pytest.raises(BusError, match="is not connected to"):
            consumer.check()
        moment = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - moment < 6
