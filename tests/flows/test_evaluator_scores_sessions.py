"""The evaluator as an application on a real broker: rewards, restarts, and what it commits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from safactory.contracts.endings import EndReason
from safactory.contracts.messages import Message
from safactory.contracts.payload import Payload
from safactory.contracts.rewards import RewardScored
from safactory.contracts.runner import RunOutcome
from safactory.contracts.sessions import SessionEnded, SessionFinished, SessionQueued, SessionSealed
from safactory.contracts.steps import StepRecorded, StepStatus
from safactory.contracts.topics import REWARD, SESSION, STEP, Topic
from safactory.evaluator.app import create_app
from safactory.evaluator.settings import EvaluatorSettings
from safactory.infra.bus import Bus
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.testkit.app_server import served
from safactory.testkit.recorder import recording

FROZENLAKE = Path(__file__).parents[2] / "environments" / "frozenlake" / "rule_evaluator.py"


def ids(session_id: str, attempt: int = 1) -> dict[str, object]:
    return {
        "session_id": session_id,
        "attempt": attempt,
        "job_id": "j1",
        "group_id": "g1",
        "environment": "frozenlake",
    }


def queued(session_id: str, attempt: int = 1) -> SessionQueued:
    return SessionQueued.model_validate({
        **ids(session_id, attempt),
        "sample": 0,
        "group_size": 1,
        "row": 0,
        "epoch": 0,
        "task": Payload(inline='{"map": ["SFF", "FHF", "FFG"]}'),
        "evaluator_path": str(FROZENLAKE),
        "route": "default",
    })


def steps(session_id: str, *words: str, attempt: int = 1) -> list[StepRecorded]:
    answers = [Message.of({"role": "assistant", "content": word}) for word in words]
    return [
        StepRecorded.model_validate({
            **ids(session_id, attempt),
            "seq": seq,
            "status": StepStatus.OK,
            "http_status": 200,
            "endpoint": "chat.completions",
            "route": "default",
            "model": "m",
            "output_hash": answer.sha256,
            "messages": Payload(inline=json.dumps([answer.model_dump()] if answer not in answers[: seq - 1] else [])),
            "parameters": Payload(inline="{}"),
        })
        for seq, answer in enumerate(answers, 1)
    ]


def over(session_id: str, last_seq: int, attempt: int = 1) -> list[SessionFinished | SessionSealed]:
    outcome = RunOutcome(reason=EndReason.FAILED)
    sealed = {"last_seq": last_seq, "prompt_tokens": 0, "completion_tokens": 0}
    return [
        SessionFinished.model_validate({**ids(session_id, attempt), "outcome": outcome}),
        SessionSealed.model_validate({**ids(session_id, attempt), **sealed}),
    ]


def ended(session_id: str) -> SessionEnded:
    return SessionEnded.model_validate({**ids(session_id), "reason": EndReason.FAILED})


async def committed(bus: Bus, topic: Topic) -> int:
    """Return how many records of a topic the evaluator's group has behind it."""
    prefix = bus.settings.topic_prefix
    consumer = AIOKafkaConsumer(bootstrap_servers=bus.settings.servers, group_id=f"{prefix}evaluator")
    await consumer.start()
    try:
        partitions = [TopicPartition(prefix + topic.name, number) for number in range(topic.partitions)]
        consumer.assign(partitions)
        return sum([await consumer.committed(partition) or 0 for partition in partitions])
    finally:
        await consumer.stop()


async def test_walks_are_scored_and_a_restart_repeats_no_other_fact(
    bus: Bus, bus_settings: BusSettings, object_settings: ObjectSettings
) -> None:
    settings = EvaluatorSettings(processes=1, join_wait_s=1.0)
    for event in [
        *steps("goal", "down", "down", "right", "right"),
        queued("goal"),
        *over("goal", 4),
        queued("hole"),
        *steps("hole", "right", "down"),
        *over("hole", 2),
        queued("empty"),
        *over("empty", 0),
    ]:
        await bus.publish(event)
    async with recording(bus, [REWARD]) as recorder:
        async with served(create_app(settings, bus_settings, object_settings)):
            rewards = {reward.session_id: reward for reward in await recorder.wait_for(RewardScored, 2)}
            assert {name: (reward.score, reward.passed) for name, reward in rewards.items()} == {
                "goal": (10.0, True),
                "hole": (1.0, False),
            }
            assert rewards["goal"].reason == "goal after 4 moves"
            await bus.publish(ended("goal"))
            await bus.publish(queued("slow"))
            for event in steps("slow", "down", "down"):
                await bus.publish(event)
            await asyncio.sleep(0.5)
        assert await committed(bus, STEP) <= 4
        for event in over("slow", 2):
            await bus.publish(event)
        async with served(create_app(settings, bus_settings, object_settings)):
            repeated = await recorder.wait_for(RewardScored, 4)
            assert len(repeated) == 4
            by_session = {reward.session_id: reward for reward in repeated[2:]}
            assert by_session["slow"].score == pytest.approx(2.5)
            assert by_session["hole"].event_id == rewards["hole"].event_id
            for name in ("hole", "slow", "empty"):
                await bus.publish(ended(name))
            await asyncio.sleep(0.5)
    assert await committed(bus, STEP) == 8
    assert await committed(bus, SESSION) == 16
