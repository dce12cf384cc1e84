"""Builders of the evaluator's records, and a scorer on real scoring processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event
from safactory.contracts.messages import Message
from safactory.contracts.payload import Payload
from safactory.contracts.runner import RunOutcome, SimulationStartResult
from safactory.contracts.sessions import SessionEnded, SessionFinished, SessionQueued, SessionSealed
from safactory.contracts.steps import StepRecorded, StepStatus
from safactory.contracts.topics import TOPIC_OF
from safactory.contracts.trajectory import Trajectory, TrajectoryStep
from safactory.evaluator.scorers.rule import RuleScorer
from safactory.evaluator.scoring_case import ScoringCase
from safactory.evaluator.scoring_pool import ScoringPool
from safactory.evaluator.settings import EvaluatorSettings
from safactory.infra.consumer import Delivery
from safactory.infra.watermark import Watermark

Change = Any


class Records:
    """Makes the events of one session, and deliveries as a consumer would hand them over."""

    def __init__(self, session_id: str = "s1") -> None:
        self.session_id = session_id
        self.watermarks: dict[str, Watermark] = {}

    def delivery(self, event: Event) -> Delivery:
        """Begin a record on its topic and hand it over, as the consumer does."""
        topic = TOPIC_OF[type(event)].name
        mark = self.watermarks.setdefault(topic, Watermark(0))
        offset = mark.reached
        mark.begin(offset)
        record = ConsumerRecord(topic, 0, offset, 0, 0, b"", event.to_json(), None, 0, 0, ())
        return Delivery(event, record, mark, topic)

    def handled(self, delivery: Delivery) -> None:
        """Do what the consumer does when the handler has returned."""
        if not delivery.held:
            self.watermarks[delivery.topic].done(delivery.offset)

    def committed(self) -> dict[str, int]:
        """Return the offset of each topic up to which everything is done."""
        return {topic.split(".")[1]: mark.next for topic, mark in self.watermarks.items()}

    def _ids(self, attempt: int) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "attempt": attempt,
            "job_id": "j1",
            "group_id": "g1",
            "environment": "test",
        }

    def queued(self, attempt: int = 1, **changes: Change) -> SessionQueued:
        fields: dict[str, Any] = {
            "sample": 0,
            "group_size": 1,
            "row": 0,
            "epoch": 0,
            "task": Payload(inline='{"answer": "42"}'),
            "evaluator_path": "",
            "route": "default",
        }
        return SessionQueued(**{**self._ids(attempt), **fields, **changes})

    def finished(self, attempt: int = 1, reason: EndReason = EndReason.SUCCEEDED) -> SessionFinished:
        result = SimulationStartResult(session_id=self.session_id, metrics={"moves": 4})
        return SessionFinished(**self._ids(attempt), outcome=RunOutcome(reason=reason, result=result))

    def sealed(self, last_seq: int, attempt: int = 1, **changes: Change) -> SessionSealed:
        return SessionSealed(**self._ids(attempt), last_seq=last_seq, prompt_tokens=1, completion_tokens=1, **changes)

    def step(self, seq: int, attempt: int = 1, *, says: str = "right", **changes: Change) -> StepRecorded:
        """Make a step whose prompt is that of all steps before it, and which carries only what is new."""
        prompt = Message.of({"role": "user", "content": "where to?"})
        answer = Message.of({"role": "assistant", "content": says})
        new = [prompt, answer] if seq == 1 else [answer]
        fields: dict[str, Any] = {
            "seq": seq,
            "status": StepStatus.OK,
            "http_status": 200,
            "endpoint": "chat.completions",
            "route": "default",
            "model": "m",
            "input_hashes": [prompt.sha256],
            "output_hash": answer.sha256,
            "messages": Payload(inline=json.dumps([message.model_dump() for message in new])),
            "parameters": Payload(inline='{"temperature": 1.0}'),
        }
        return StepRecorded(**{**self._ids(attempt), **fields, **changes})

    def ended(self, attempt: int = 1) -> SessionEnded:
        return SessionEnded(**self._ids(attempt), reason=EndReason.SUCCEEDED, score=10.0)


def a_case(evaluator: Path | str, *, says: str = "right", **changes: Change) -> ScoringCase:
    """Build a case of one step."""
    step = TrajectoryStep(
        seq=1,
        status=StepStatus.OK,
        messages=[Message.of({"role": "user", "content": "where to?"})],
        response=Message.of({"role": "assistant", "content": says}),
    )
    fields: dict[str, Any] = {
        "evaluator_path": str(evaluator),
        "job_id": "j1",
        "group_id": "g1",
        "environment": "test",
        "route": "default",
        "pass_score": 10.0,
        "timeout_s": 10.0,
        "row": {"answer": "42"},
        "start_result": SimulationStartResult(session_id="s1", metrics={"moves": 4}),
        "trajectory": Trajectory(session_id="s1", attempt=1, steps=[step]),
    }
    return ScoringCase(**{**fields, **changes})


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def make_case() -> Callable[..., ScoringCase]:
    return a_case


@pytest.fixture
async def scorer() -> AsyncIterator[RuleScorer]:
    one = RuleScorer(ScoringPool(EvaluatorSettings(processes=1, sessions_a_process=500)))
    yield one
    await one.end()
