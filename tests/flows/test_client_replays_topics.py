"""`safactory replay` on a real broker: both ends bounded, by offset and by time; dead letters go back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from safactory.contracts.topics import METRIC
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Delivery
from safactory.sdk.commands.replay import Target, replay_topic
from safactory.testkit.builders import a_metrics_reported

HERE = Path()


async def replay(bus: Bus, source: str, bounds: tuple[str, str] = ("0", ""), **target: Any) -> int:
    given = Target(**({"file": None, "topic": "", "group": ""} | target))
    return await asyncio.to_thread(replay_topic, source, bounds, given, bus.settings.servers, HERE)


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [json.loads(row["value"])["step"] for row in rows]


async def publish(bus: Bus, numbers: range) -> None:
    for number in numbers:
        await bus.publish(a_metrics_reported(step=number))


def topic_of(bus: Bus) -> str:
    return bus.settings.topic_prefix + METRIC.name


async def test_a_range_of_offsets_goes_to_a_file_or_to_stdout(
    bus: Bus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await publish(bus, range(10))
    file = tmp_path / "metrics.jsonl"
    assert await replay(bus, topic_of(bus), ("2", "5"), file=file) == 0
    assert steps(read(file)) == [2, 3, 4]
    assert read(file)[0]["headers"]["ce_type"] == "metrics.reported"
    assert await replay(bus, topic_of(bus)) == 0
    out, err = capsys.readouterr()
    assert steps([json.loads(line) for line in out.splitlines()]) == list(range(10))
    assert "10 records" in err


async def test_a_range_of_times_has_both_ends(bus: Bus, tmp_path: Path) -> None:
    await publish(bus, range(3))
    await asyncio.sleep(0.3)
    start = datetime.now(UTC).isoformat()
    await asyncio.sleep(0.3)
    await publish(bus, range(3, 6))
    await asyncio.sleep(0.3)
    end = datetime.now(UTC).isoformat()
    await asyncio.sleep(0.3)
    await publish(bus, range(6, 9))
    file = tmp_path / "metrics.jsonl"
    assert await replay(bus, topic_of(bus), (start, end), file=file) == 0
    assert steps(read(file)) == [3, 4, 5]


async def test_a_topic_that_is_still_written_to_comes_to_an_end(bus: Bus, tmp_path: Path) -> None:
    await publish(bus, range(5))
    writing = asyncio.create_task(publish(bus, range(5, 100_000)))
    started_s = time.monotonic()
    assert await replay(bus, topic_of(bus), file=tmp_path / "metrics.jsonl") == 0
    assert time.monotonic() - started_s < 20
    assert steps(read(tmp_path / "metrics.jsonl"))[:5] == [0, 1, 2, 3, 4]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_a_fresh_group_begins_where_the_range_does(bus: Bus) -> None:
    await publish(bus, range(6))
    group = f"{bus.settings.topic_prefix}again"
    assert await replay(bus, topic_of(bus), ("4", ""), group=group) == 0
    consumer = AIOKafkaConsumer(bootstrap_servers=bus.settings.servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    tp = TopicPartition(topic_of(bus), 0)
    consumer.assign([tp])
    assert await consumer.committed(tp) == 4
    await consumer.stop()


async def test_dead_letters_that_are_fed_back_are_handled_by_a_mended_reader(bus: Bus) -> None:
    seen: list[int] = []
    broken = True

    async def handle(delivery: Delivery) -> None:
        event: Any = delivery.event
        if broken:
            raise ValueError("not mended yet")
        seen.append(event.step)

    async def settled(topic: str) -> None:
        for _ in range(100):
            if (await bus_ends(bus, topic)) > 0:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"nothing in {topic}")

    consumer = Consumer(bus, "reader", [METRIC], handle)
    await consumer.start()
    try:
        await publish(bus, range(1))
        letters = topic_of(bus) + ".dlq"
        await settled(letters)
        broken = False
        assert await replay(bus, letters, topic=topic_of(bus)) == 0
        for _ in range(100):
            if seen:
                break
            await asyncio.sleep(0.1)
        assert seen == [0]
    finally:
        await consumer.stop()


async def bus_ends(bus: Bus, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=bus.settings.servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return len((await consumer.getmany(timeout_ms=300)).get(TopicPartition(topic, 0), []))
    finally:
        await consumer.stop()


@pytest.mark.parametrize(
    ("topic", "bounds", "target", "says"),
    [
        ("nowhere", ("0", ""), {}, "no topic nowhere; there are"),
        ("", ("0", ""), {"topic": "nowhere"}, "no topic nowhere; there are"),
        ("", ("yesterday", ""), {}, "neither an offset nor a time"),
        ("", ("0", "tomorrow"), {}, "neither an offset nor a time"),
    ],
)
async def test_a_wrong_word_is_refused(
    bus: Bus,
    capsys: pytest.CaptureFixture[str],
    topic: str,
    bounds: tuple[str, str],
    target: dict[str, str],
    says: str,
) -> None:
    await publish(bus, range(1))
    with pytest.raises(SystemExit) as left:
        await replay(bus, topic or topic_of(bus), bounds, **target)
    assert left.value.code == 2
    assert says in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    target = Target(file=None, topic="", group="")
    with pytest.raises(SystemExit) as left:
        replay_topic(METRIC.name, ("0", ""), target, "127.0.0.1:9", HERE)
    assert left.value.code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
