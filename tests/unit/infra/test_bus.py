"""Publishing while the broker comes and goes: everything arrives, and nothing overtakes what has the same key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from safactory.contracts.errors import BusError, PoisonError
from safactory.contracts.event import Event
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.steps import StepRecorded
from safactory.contracts.topics import METRIC, STEP, TOPICS
from safactory.infra.bus import Bus, cluster_id, ensure_topics, record_of
from safactory.infra.settings import BusSettings
from safactory.testkit import builders
from safactory.testkit.plugin import embedded_broker
from safactory.testkit.ports import free_port
from safactory.testkit.recorder import recording

KEYS = ("a", "b", "c")


def a_step(number: int) -> StepRecorded:
    return builders.a_step_recorded(session_id=KEYS[number % len(KEYS)], seq=number)


def by_key(steps: list[StepRecorded]) -> dict[str, list[int]]:
    """Return each key's numbers in the order of their first coming: a repeat has the same identity."""
    found: dict[str, dict[int, None]] = {key: {} for key in KEYS}
    for step in steps:
        found[step.session_id][step.seq] = None
    return {key: list(numbers) for key, numbers in found.items()}


def in_order(numbers: range) -> dict[str, list[int]]:
    return {key: [n for n in numbers if KEYS[n % len(KEYS)] == key] for key in KEYS}


@pytest.fixture
def own(tmp_path: Path) -> BusSettings:
    """Settings for a broker of this test's own."""
    servers = f"127.0.0.1:{free_port()}"
    return BusSettings(servers=servers, wal_dir=tmp_path / "wal", publish_timeout_s=0.5, poll_ms=50)


def port_of(settings: BusSettings) -> int:
    return int(settings.servers.partition(":")[2])


@contextlib.asynccontextmanager
async def started(settings: BusSettings, source: str = "test") -> AsyncIterator[Bus]:
    bus = Bus(settings, source)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


async def until_ready(bus: Bus) -> None:
    async with asyncio.timeout(20):
        while not bus.ready:
            await asyncio.sleep(0.05)


async def test_what_was_published_without_a_broker_arrives_in_order_when_it_is_back(own: BusSettings) -> None:
    async with started(own) as bus:
        with embedded_broker(port_of(own)):
            await until_ready(bus)
            await bus.publish(a_step(0))
        for number in range(1, 30):
            await bus.publish(a_step(number))
        assert not bus.ready
        with pytest.raises(BusError, match="no broker at"):
            bus.check()
        assert len((own.wal_dir / "test.wal").read_bytes().splitlines()) == 29
        with embedded_broker(port_of(own)):
            late = asyncio.create_task(_publish_while_draining(bus, range(30, 60)))
            async with recording(bus, [STEP]) as recorder:
                await late
                steps = await recorder.wait_for(StepRecorded, 59)
            assert by_key(steps) == in_order(range(1, 60)), "the first died with the embedded broker's memory"
            await until_ready(bus)
            bus.check()
        assert not (own.wal_dir / "test.wal").exists()


async def _publish_while_draining(bus: Bus, numbers: range) -> None:
    for number in numbers:
        await bus.publish(a_step(number))
        await asyncio.sleep(0.05)


async def test_a_publisher_that_dies_without_a_broker_leaves_its_events_to_the_next(own: BusSettings) -> None:
    async with started(own) as bus:
        for number in range(10):
            await bus.publish(a_step(number))
    with embedded_broker(port_of(own)):
        async with started(own) as bus, recording(bus, [STEP]) as recorder:
            await bus.publish(a_step(10))
            steps = await recorder.wait_for(StepRecorded, 11)
    assert by_key(steps) == in_order(range(11))


async def test_a_broker_that_is_away_delays_a_start_by_no_more_than_the_bound(own: BusSettings) -> None:
    moment = asyncio.get_running_loop().time()
    async with started(own) as bus:
        await bus.publish(a_step(0))
        assert asyncio.get_running_loop().time() - moment < 2.0
        with pytest.raises(BusError, match="did not take"):
            await bus.send(record_of(a_step(1), "test", own))


async def test_neither_broker_nor_disk_is_an_error_to_the_caller(own: BusSettings) -> None:
    own.wal_dir.parent.mkdir(exist_ok=True)
    own.wal_dir.write_text("not a folder")
    async with started(own) as bus:
        with pytest.raises(BusError, match="write-ahead file"):
            await bus.publish(a_step(0))


async def test_an_event_too_large_for_any_broker_is_refused_and_blocks_nothing(bus: Bus) -> None:
    huge = builders.a_metrics_reported(run_id="x" * 1_100_000)
    with pytest.raises(PoisonError, match=r"metrics\.reported has \d+ bytes, over BUS_MESSAGE_BYTES_MAX"):
        await bus.publish(huge)
    large = builders.a_metrics_reported(source="x" * 900_000)
    await bus.publish(large)
    async with recording(bus, [METRIC]) as recorder:
        assert await recorder.wait_for(MetricsReported) == [large]
    assert bus.ready


async def test_every_event_arrives_as_it_was_with_its_cloudevents_headers(bus: Bus) -> None:
    events: list[Event] = [
        builders.a_session_queued(), builders.a_step_recorded(seq=3), builders.a_weights_published(),
    ]  # fmt: skip
    async with recording(bus, TOPICS) as recorder:
        for event in events:
            await bus.publish(event)
        for event in events:
            assert await recorder.wait_for(type(event)) == [event]
    headers = {name: value.decode() for name, value in record_of(events[1], "gateway-0", bus.settings).headers}
    assert headers["ce_id"] == events[1].event_id
    assert (headers["ce_type"], headers["ce_source"], headers["ce_seq"]) == ("step.recorded", "gateway-0", "3")
    assert (headers["ce_specversion"], headers["content-type"]) == ("1.0", "application/json")
    assert headers["ce_time"] == events[1].occurred_at.isoformat()


async def test_making_the_topics_again_changes_nothing(bus: Bus) -> None:
    await ensure_topics(bus.settings)
    await ensure_topics(bus.settings)


async def test_a_brokers_next_life_has_another_id(own: BusSettings) -> None:
    lives = []
    for _ in range(2):
        with embedded_broker(port_of(own)):
            lives += [await cluster_id(own), await cluster_id(own)]
    assert lives[0] == lives[1]
    assert lives[2] == lives[3] != lives[0]
