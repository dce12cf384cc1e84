"""From joined records to one published reward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import BusError
from safactory.contracts.event import Event
from safactory.contracts.messages import Message
from safactory.contracts.payload import ObjectRef, Payload
from safactory.contracts.rewards import RewardScored
from safactory.evaluator import scoring
from safactory.evaluator.attempts import Attempts
from safactory.evaluator.inbox import make_inbox
from safactory.evaluator.scorers.rule import RuleScorer
from safactory.evaluator.scoring import Scoring
from safactory.infra.objects import Objects, make_objects
from safactory.infra.payloads import pack
from safactory.infra.settings import ObjectSettings

Records = Any

RULE = """
def evaluate(request, spec, trajectory):
    texts = [step.response for step in trajectory.steps]
    prompts = [step.messages[0]["content"] for step in trajectory.steps]
    return {"score": request.dataset["points"], "artifacts": {"texts": texts, "prompts": prompts}}
"""


class Desk:
    """A scoring loop with its inbox, and the rewards that it published."""

    def __init__(self, objects: Objects, scorer: RuleScorer) -> None:
        self.objects = objects
        self.rewards: list[RewardScored] = []
        self.failures = 0
        self.attempts = Attempts()
        self.scoring = Scoring(self.attempts, scorer, objects, self._publish, join_wait_s=1.0)
        self.inbox = make_inbox(self.attempts, self.scoring.wake)
        self.caught_up = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def _publish(self, reward: RewardScored) -> None:
        if self.failures:
            self.failures -= 1
            raise BusError("the disk is full")
        self.rewards.append(reward)

    async def _catch_up(self) -> None:
        await self.caught_up.wait()

    async def start(self) -> None:
        self.task = asyncio.create_task(self.scoring.run(self._catch_up()))

    async def deliver(self, records: Records, *events: Event) -> None:
        for event in events:
            delivery = records.delivery(event)
            await self.inbox(delivery)
            records.handled(delivery)

    async def reward(self) -> RewardScored:
        for _ in range(500):
            if self.rewards:
                return self.rewards.pop()
            await asyncio.sleep(0.02)
        raise AssertionError("no reward came")


@pytest.fixture
async def desk(tmp_path: Path, scorer: RuleScorer) -> AsyncIterator[Desk]:
    desk = Desk(make_objects(ObjectSettings(url=f"file://{tmp_path}/objects")), scorer)
    desk.caught_up.set()
    await desk.start()
    yield desk
    assert desk.task is not None
    desk.task.cancel()
    await asyncio.gather(desk.task, return_exceptions=True)
    await desk.scoring.end()


@pytest.fixture
def rule_path(tmp_path: Path) -> str:
    path = tmp_path / "rule_evaluator.py"
    path.write_text(RULE)
    return str(path)


def task(points: object) -> Payload:
    return Payload(inline=json.dumps({"points": points}))


async def test_a_whole_attempt_becomes_one_reward(desk: Desk, records: Records, rule_path: str) -> None:
    queued = records.queued(evaluator_path=rule_path, task=task(12), pass_score=8.0)
    steps = [records.step(1, says="left"), records.step(2, says="right")]
    await desk.deliver(records, *reversed(steps), queued, records.finished(), records.sealed(2))
    reward = await desk.reward()
    assert (reward.score, reward.raw_score, reward.passed, reward.error) == (10.0, 12.0, True, "")
    assert (reward.session_id, reward.attempt, reward.scorer) == ("s1", 1, "rule")
    assert reward.artifacts == {"texts": ["left", "right"], "prompts": ["where to?", "where to?"]}
    assert 0 < reward.wall_s < 5
    assert records.committed() == {"session": 0, "step": 0}
    await desk.deliver(records, records.ended())
    assert records.committed() == {"session": 4, "step": 2}


async def test_a_score_below_the_mark_has_not_passed(desk: Desk, records: Records, rule_path: str) -> None:
    queued = records.queued(evaluator_path=rule_path, task=task(3))
    truncated = records.finished(reason=EndReason.TRUNCATED_STEPS)
    await desk.deliver(records, queued, records.step(1), truncated, records.sealed(1, truncated=True))
    reward = await desk.reward()
    assert (reward.score, reward.passed) == (3.0, False)


@pytest.mark.parametrize(
    ("points", "says"), [("many", "no number"), (True, "bool"), (float("nan"), "not finite"), (None, "no score")]
)
async def test_an_evaluator_without_a_number_is_an_error_and_no_zero(
    desk: Desk, records: Records, rule_path: str, points: object, says: str
) -> None:
    queued = records.queued(evaluator_path=rule_path, task=task(points))
    await desk.deliver(records, queued, records.step(1), records.finished(), records.sealed(1))
    reward = await desk.reward()
    assert reward.score is None and not reward.passed
    assert says in reward.error


async def test_no_evaluator_is_an_error_of_its_own(desk: Desk, records: Records) -> None:
    await desk.deliver(records, records.queued(), records.step(1), records.finished(), records.sealed(1))
    reward = await desk.reward()
    assert (reward.score, reward.scorer_version) == (None, "")
    assert reward.error.startswith("no rule_evaluator.py in")


async def test_a_step_that_never_comes_is_waited_for_and_then_named(
    desk: Desk, records: Records, rule_path: str
) -> None:
    await desk.deliver(records, records.queued(evaluator_path=rule_path), records.step(1), records.step(3))
    await desk.deliver(records, records.finished(), records.sealed(3))
    await asyncio.sleep(0.5)
    assert desk.rewards == []
    reward = await desk.reward()
    assert reward.score is None
    assert "step 2 did not arrive within 1 s" in reward.error


async def test_large_payloads_are_fetched_and_lost_ones_are_an_error(
    desk: Desk, records: Records, rule_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BACKOFF_S", 0.01)
    message = Message.of({"role": "assistant", "content": "z" * 100_000})
    packed = await pack(desk.objects, json.dumps([message.model_dump()]))
    assert packed.ref is not None
    step = records.step(1, input_hashes=[message.sha256], output_hash=message.sha256, messages=packed)
    queued = records.queued(evaluator_path=rule_path, task=task(10))
    await desk.deliver(records, queued, step, records.finished(), records.sealed(1))
    reward = await desk.reward()
    assert reward.score == 10.0
    assert reward.artifacts["dropped"]

    lost = Payload(ref=ObjectRef(uri="file:///nowhere/at/all", sha256="0" * 64, bytes=1))
    queued = records.queued(attempt=2, evaluator_path=rule_path, task=lost)
    await desk.deliver(records, queued, records.step(1, attempt=2))
    await desk.deliver(records, records.finished(attempt=2), records.sealed(1, attempt=2))
    assert "/nowhere/at/all" in (await desk.reward()).error


async def test_a_hash_without_a_body_is_an_error(desk: Desk, records: Records, rule_path: str) -> None:
    step = records.step(1, input_hashes=["f" * 64])
    queued = records.queued(evaluator_path=rule_path, task=task(1))
    await desk.deliver(records, queued, step, records.finished(), records.sealed(1))
    assert "whose body no step carries" in (await desk.reward()).error


async def test_nothing_is_judged_before_the_past_is_read(
    tmp_path: Path, scorer: RuleScorer, records: Records, rule_path: str
) -> None:
    desk = Desk(make_objects(ObjectSettings(url=f"file://{tmp_path}/objects")), scorer)
    await desk.start()
    # After a restart: the session's records, but no steps, for those were committed when it ended.
    queued = records.queued(evaluator_path=rule_path, task=task(1))
    await desk.deliver(records, queued, records.finished(), records.sealed(1))
    await asyncio.sleep(1.2)
    await desk.deliver(records, records.ended())
    desk.caught_up.set()
    await asyncio.sleep(0.2)
    assert desk.rewards == []
    assert records.committed() == {"session": 4}
    assert desk.task is not None
    desk.task.cancel()
    await asyncio.gather(desk.task, return_exceptions=True)
    await desk.scoring.end()


async def test_a_reward_that_nothing_takes_is_tried_until_something_does(
    desk: Desk, records: Records, rule_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BACKOFF_S", 0.01)
    desk.failures = 3
    queued = records.queued(evaluator_path=rule_path, task=task(10))
    await desk.deliver(records, queued, records.step(1), records.finished(), records.sealed(1))
    assert (await desk.reward()).score == 10.0


async def test_a_repeat_after_a_restart_is_the_same_fact(
    desk: Desk, records: Records, rule_path: str, tmp_path: Path, scorer: RuleScorer
) -> None:
    queued = records.queued(evaluator_path=rule_path, task=task(10))
    events = [queued, records.step(1), records.finished(), records.sealed(1)]
    await desk.deliver(records, *events)
    first = await desk.reward()
    again = Desk(desk.objects, scorer)
    again.caught_up.set()
    await again.start()
    await again.deliver(records, *events)
    second = await again.reward()
    assert first.event_id == second.event_id
    assert again.task is not None
    again.task.cancel()
    await asyncio.gather(again.task, return_exceptions=True)
