"""`replay`: a range of a topic again: to stdout, a file, another topic, or as a fresh group's place.

Both ends are fixed before the first record is read, so a replay of a topic that is still written to ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from safactory.contracts.errors import BusError, ConfigError
from safactory.infra.admin import admin_client
from safactory.sdk import stack_file
from safactory.sdk.errors_shown import errors_shown

QUIET_MS = 500


class Target(NamedTuple):
    """Where records go."""

    file: Path | None
    topic: str
    group: str


def replay_topic(topic: str, bounds: tuple[str, str], target: Target, servers: str, home: Path) -> int:
    """Replay, and print how many records there were."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what it would say is in the error
    with errors_shown():
        where = servers or stack_file.require(home).plan.bus_servers
        try:
            count = asyncio.run(_replay(topic, bounds, target, where))
        except (KafkaError, OSError) as error:
            raise BusError(f"broker at {where}: {error!r}") from error
        print(_said(count, target), file=sys.stderr)
    return 0


def _said(count: int, target: Target) -> str:
    if target.group:
        return f"group {target.group} begins at the start of the range, in each of {count} partitions"
    place = f" to {target.topic}" if target.topic else f" to {target.file}" if target.file else ""
    return f"{count} records{place}"


class Range(NamedTuple):
    """Which records: by offset and by time, both ends fixed."""

    first: dict[TopicPartition, int]
    stop: dict[TopicPartition, int]
    """Nothing from here on is waited for."""
    end_offset: int | None
    """Exclusive; None: no bound by offset."""
    end_ms: int
    """Inclusive."""

    def holds(self, record: ConsumerRecord) -> bool:
        """Whether a record is inside."""
        return record.timestamp <= self.end_ms and (self.end_offset is None or record.offset < self.end_offset)


async def _replay(topic: str, bounds: tuple[str, str], target: Target, servers: str) -> int:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=target.group or None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    try:
        await consumer.start()
        tps = await _partitions(topic, target, servers)
        wanted = await _range(consumer, tps, *bounds)
        consumer.assign(tps)
        if target.group:
            await consumer.commit(wanted.first)
            return len(tps)
        for tp in tps:
            consumer.seek(tp, wanted.first[tp])
        return await _copy(consumer, wanted, target, servers)
    finally:
        await consumer.stop()


async def _partitions(topic: str, target: Target, servers: str) -> list[TopicPartition]:
    """Return a topic's partitions, from the broker: a consumer knows only those of topics that it reads already."""
    async with admin_client(servers) as admin:
        known = sorted(await admin.list_topics())
        for name in (topic, target.topic):
            if name and name not in known:
                raise ConfigError(f"no topic {name}; there are {', '.join(known)}")
        (described,) = await admin.describe_topics([topic])
    return [TopicPartition(topic, number) for number in sorted(p["partition"] for p in described["partitions"])]


async def _range(consumer: AIOKafkaConsumer, tps: list[TopicPartition], start: str, end: str) -> Range:
    ends: dict[TopicPartition, int] = await consumer.end_offsets(tps)
    first = dict.fromkeys(tps, int(start)) if start.isdigit() else ends
    if not start.isdigit():
        found = await consumer.offsets_for_times(dict.fromkeys(tps, _milliseconds(start)))
        first = {tp: found[tp].offset if found.get(tp) else ends[tp] for tp in tps}
    end_offset = int(end) if end.isdigit() else None
    stop = {tp: ends[tp] if end_offset is None else min(end_offset, ends[tp]) for tp in tps}
    # An embedded broker reports the start of its last batch as the end, so the end as it is now is a moment.
    end_ms = _milliseconds(end) if end and end_offset is None else int(time.time() * 1000)
    return Range(first, stop, end_offset, end_ms)


def _milliseconds(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise ConfigError(f"{text!r} is neither an offset nor a time such as 2026-11-29T10:00:00Z") from error


async def _copy(consumer: AIOKafkaConsumer, wanted: Range, target: Target, servers: str) -> int:
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all") if target.topic else None
    if producer:
        await producer.start()
    output: IO[str] = target.file.open("w") if target.file else sys.stdout
    count = 0
    try:
        while not all([await consumer.position(tp) >= end for tp, end in wanted.stop.items()]):
            batches = await consumer.getmany(timeout_ms=QUIET_MS)
            inside = [record for records in batches.values() for record in records if wanted.holds(record)]
            for record in inside:
                await _give(record, producer, target, output)
            count += len(inside)
    finally:
        if producer:
            await producer.stop()
        if target.file:
            output.close()
    return count


async def _give(record: ConsumerRecord, producer: AIOKafkaProducer | None, target: Target, output: IO[str]) -> None:
    headers = [(name, value) for name, value in record.headers if not name.startswith("dlq_")]
    if producer is not None:
        await producer.send_and_wait(target.topic, key=record.key, value=record.value, headers=headers)
        return
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": (record.key or b"").decode(errors="replace"),
        "headers": {name: value.decode(errors="replace") for name, value in record.headers},
        "value": (record.value or b"").decode(errors="replace"),
    }
    output.write(json.dumps(line, ensure_ascii=False) + "\n")
