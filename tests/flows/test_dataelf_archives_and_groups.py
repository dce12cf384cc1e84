"""Dataelf on a real broker and the real ClickHouse engine: every event in the archive, groups as rollouts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event
from safactory.contracts.ids import VersionSpan, new_session_id
from safactory.contracts.payload import Payload
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.steps import StepTokens
from safactory.contracts.topics import EVENT_OF, STEP
from safactory.dataelf.app import create_app
from safactory.dataelf.settings import DataelfSettings
from safactory.infra.bus import Bus
from safactory.infra.outbox import Record
from safactory.infra.settings import ArchiveSettings, ObjectSettings
from safactory.testkit import builders
from safactory.testkit.app_server import served
from safactory.testkit.recorder import recording

ALL = [getattr(builders, f"a_{name.replace('.', '_')}")() for name in EVENT_OF]


@contextlib.asynccontextmanager
async def dataelf(bus: Bus, objects: ObjectSettings, tmp_path: Path, **options: Any) -> AsyncIterator[str]:
    app = create_app(
        DataelfSettings(flush_interval_s=0.05, **options),
        bus.settings.model_copy(update={"wal_dir": tmp_path / "dataelf-wal"}),
        objects,
        ArchiveSettings(url=f"chdb://{tmp_path}/archive"),
    )
    async with served(app) as url:
        yield url


async def get(url: str, until: Any = bool) -> Any:
    """Return the first answer that is what the test waits for."""
    answer: Any = None
    for _ in range(200):
        response = await asyncio.to_thread(httpx.get, url)
        answer = response.json()
        if response.status_code == 200 and until(answer):
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"{url} last answered {answer}")


async def test_every_event_is_archived_once_and_a_repeat_changes_nothing(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    async with dataelf(bus, object_settings, tmp_path) as url:
        for _ in range(2):
            for event in ALL:
                await bus.publish(event)
        view = await get(
            f"{url}/v1/sessions/{builders.SESSION}",
            lambda v: len(v["events"]) == 5 and v["rewards"] and v["trajectory"],
        )
        assert [reward["score"] for reward in view["rewards"]] == [10.0]
        (step,) = view["trajectory"]["steps"]
        assert [message["body"]["content"] for message in step["messages"]] == ["row P F"]
        assert step["response"]["body"]["content"] == "down"
        results = await get(f"{url}/v1/jobs/{builders.JOB}/results")
        assert results["environments"][0]["endings"] == {"succeeded": 1}
        assert results["environments"][0]["mean_fraction"] == 1.0
        assert (await get(f"{url}/v1/runs/{builders.JOB}/metrics"))[0]["values"] == {"loss": 0.5}
        assert [w["version"] for w in await get(f"{url}/v1/runs/{builders.JOB}/weights")] == ["0.1"]
        audit = await get(f"{url}/v1/jobs/{builders.JOB}/audit")
        assert audit["findings"] == []
        assert audit["ledger_records"] == 2 * len(ALL)


async def test_a_restart_reads_on_where_the_ledger_ends(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    for round_ in range(2):
        for event in ALL:
            await bus.publish(event)
        async with dataelf(bus, object_settings, tmp_path) as url:
            wanted = len(ALL) * (round_ + 1)
            path = f"{url}/v1/jobs/{builders.JOB}/audit"
            audit = await get(path, lambda answer, wanted=wanted: answer["ledger_records"] >= wanted)
            assert (audit["findings"], audit["ledger_records"]) == ([], wanted)


async def test_a_poisoned_record_goes_to_the_dead_letters_and_marks_its_session(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    topic = bus.settings.topic_prefix + STEP.name
    headers = (("ce_type", b"step.recorded"), ("ce_id", b"x"))
    async with dataelf(bus, object_settings, tmp_path) as url:
        for event in ALL:
            await bus.publish(event)
        await bus.send(Record(topic, builders.SESSION.encode(), b"not json", headers))
        view = await get(f"{url}/v1/sessions/{builders.SESSION}", lambda v: v["gap"])
        assert len(view["trajectory"]["steps"]) == 1
        audit = await get(f"{url}/v1/jobs/{builders.JOB}/audit", lambda a: a["findings"])
        assert "dead letter: safactory.step.v1" in audit["findings"][0]


def _session(group: str, score: float | None, reason: EndReason = EndReason.FAILED) -> list[Event]:
    session_id = new_session_id()
    same: dict[str, Any] = {"session_id": session_id, "group_id": group, "job_id": "train-1"}
    first = StepTokens(prompt_token_ids=[1, 2, 3], completion_token_ids=[4], logprobs=[-0.5])
    second = StepTokens(prompt_token_ids=[1, 2, 3, 4, 9], completion_token_ids=[5, 6], logprobs=[-0.1, None])
    other = StepTokens(prompt_token_ids=[7], completion_token_ids=[8], logprobs=[-0.2])
    steps = [
        builders.a_step_recorded(
            **same,
            seq=seq,
            tokens=Payload(inline=tokens.model_dump_json()),
            weight_versions=[VersionSpan(version=f"0.{seq}", start=0, end=len(tokens.completion_token_ids))],
        )
        for seq, tokens in enumerate((first, second, other), 1)
    ]
    ended = builders.a_session_ended(**same, score=score, reason=reason, last_seq=3, group_size=3, mode="train")
    return [ended, *steps]


async def test_a_complete_group_becomes_one_rollout_in_token_form(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    events = [
        *_session("g1", 10.0, EndReason.SUCCEEDED),
        *_session("g1", 0.0),
        *_session("g1", None, EndReason.INFRASTRUCTURE_ERROR),
    ]
    async with dataelf(bus, object_settings, tmp_path), recording(bus) as recorder:
        for event in events:
            await bus.publish(event)
        (rollout,) = await recorder.wait_for(RolloutReady)
    assert (rollout.group_size, rollout.sample_count, rollout.oldest_version) == (3, 2, "0.1")
    assert rollout.reward_mean == pytest.approx(0.5)
    samples = json.loads(rollout.samples.inline or "[]")
    joined, alone = samples[0]["sequences"]
    assert joined["token_ids"] == [1, 2, 3, 4, 9, 5, 6]
    assert joined["loss_mask"] == [0, 0, 0, 1, 0, 1, 0], "a token without a logprob must be masked"
    assert [(s["version"], s["start"], s["end"]) for s in joined["weight_versions"]] == [("0.1", 3, 4), ("0.2", 5, 7)]
    assert (alone["token_ids"], alone["loss_mask"]) == ([7, 8], [0, 1])


@pytest.mark.parametrize(
    ("scores", "reason"),
    [((5.0, 5.0, 5.0), "equal_rewards"), ((None, None, 1.0), "too_few_samples"), ((None, None, None), "cancelled")],
)
async def test_a_group_that_teaches_nothing_is_dropped_with_its_reason(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path, scores: tuple[float | None, ...], reason: str
) -> None:
    group = str(uuid.uuid4())
    async with dataelf(bus, object_settings, tmp_path), recording(bus) as recorder:
        for score in scores:
            for event in _session(group, score, EndReason.FAILED if score is not None else EndReason.AGENT_ERROR):
                await bus.publish(event)
        (dropped,) = await recorder.wait_for(RolloutDropped)
    assert (dropped.group_id, dropped.reason) == (group, reason)
