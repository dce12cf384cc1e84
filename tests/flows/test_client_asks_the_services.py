"""The client, synchronous and asynchronous, against the real scheduler and dataelf on one bus."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import ConfigError, SafactoryError, ServiceError
from safactory.contracts.jobs import JobRequest, SourceFile
from safactory.dataelf.app import create_app as create_dataelf
from safactory.dataelf.settings import DataelfSettings
from safactory.infra.bus import Bus
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import ArchiveSettings, ObjectSettings
from safactory.scheduler.app import create_app as create_scheduler
from safactory.scheduler.settings import SchedulerSettings
from safactory.sdk import stack_file
from safactory.sdk.async_client import AsyncSafactory
from safactory.sdk.calls import NotFoundError
from safactory.sdk.client import Safactory
from safactory.sdk.commands import jobs
from safactory.sdk.stack_plan import StackPlan
from safactory.testkit import builders
from safactory.testkit.app_server import served
from safactory.testkit.ports import free_port

CONFIG = Path(__file__).parents[2] / "environments" / "frozenlake" / "frozenlake_config.yaml"
NOWHERE = "http://127.0.0.1:9"
A = TypeVar("A")


class Services(NamedTuple):
    scheduler: str
    dataelf: str


@contextlib.asynccontextmanager
async def services(bus: Bus, objects: ObjectSettings, folder: Path) -> AsyncIterator[Services]:
    """Serve a scheduler without workers, and a dataelf."""
    ours = bus.settings.model_copy(update={"wal_dir": folder / "scheduler-wal"})
    theirs = bus.settings.model_copy(update={"wal_dir": folder / "dataelf-wal"})
    scheduler = create_scheduler(
        SchedulerSettings(grpc_port=free_port(), tick_s=0.1),
        ours,
        objects,
        TokenSettings.model_validate({"key": "k" * 32}),
    )
    archive = ArchiveSettings(url=f"chdb://{folder}/archive")
    dataelf = create_dataelf(DataelfSettings(flush_interval_s=0.05), theirs, objects, archive)
    async with served(scheduler) as scheduler_url, served(dataelf) as dataelf_url:
        yield Services(scheduler_url, dataelf_url)


def a_request(**changes: Any) -> JobRequest:
    return JobRequest.model_validate({"agent_config": SourceFile(path=str(CONFIG)), "limit": 3, "samples": 2} | changes)


async def until(ask: Callable[[], Awaitable[A]], holds: Callable[[A], bool]) -> A:
    """Return the first answer that holds; no answer is waited for too."""
    last: object = None
    for _ in range(200):
        with contextlib.suppress(SafactoryError):
            last = answer = await ask()
            if holds(answer):
                return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"the last answer was {last}")


def test_both_clients_have_the_same_calls() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(call).parameters) for name, call in found if not name.startswith("_")}

    assert calls(Safactory) == calls(AsyncSafactory)


async def test_a_job_is_submitted_watched_cancelled_and_archived(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    async with services(bus, object_settings, tmp_path) as urls, AsyncSafactory(*urls) as client:
        status = await client.submit(a_request())
        job_id = str(status["job_id"])
        assert (status["state"], status["planned"], status["environments"]) == ("running", 6, {"frozenlake": 6})
        assert [job["job_id"] for job in await client.jobs()] == [job_id]
        assert (await client.job(job_id))["queued"] == 6

        stopped = await client.cancel(job_id, "enough")
        assert (stopped["state"], stopped["cause"], stopped["ended"]) == ("ended", "enough", {"cancelled": 6})
        results = await until(lambda: client.results(job_id), lambda answer: answer["ended"] == 6)
        assert results["attempts"] == stopped["attempts"] == 6
        assert results["causes"] == ["6 × cancelled: enough"]
        assert (await client.job_spec(job_id))["route"] == "default"
        assert [job["job_id"] for job in await client.archived_jobs()] == [job_id]
        assert len(await client.sessions(job_id, limit=4)) == 4
        assert (await until(lambda: client.audit(job_id), lambda answer: not answer["findings"]))["planned"] == 6

        again = await client.resume(job_id)
        assert (again["state"], again["queued"], again["ended"]) == ("running", 6, {})
        await client.cancel(job_id, "enough now")


async def test_a_job_larger_than_one_look_has_an_ending_for_each_session_when_it_is_cancelled_at_once(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    dataset = tmp_path / "lakes.jsonl"
    dataset.write_text((json.dumps({"map": ["SFF", "FFF", "FFG"]}) + "\n") * 150)
    async with services(bus, object_settings, tmp_path) as urls, AsyncSafactory(*urls) as client:
        status = await client.submit(a_request(dataset=str(dataset), limit=None, samples=1))
        stopped = await client.cancel(str(status["job_id"]), "enough")
        assert (stopped["state"], stopped["ended"]) == ("ended", {"cancelled": 150})


async def test_the_synchronous_client_reads_a_session_and_a_run(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    events = [
        builders.a_job_submitted(),
        builders.a_session_queued(),
        builders.a_step_recorded(),
        builders.a_reward_scored(),
        builders.a_session_ended(),
        builders.a_metrics_reported(),
        builders.a_weights_published(),
        builders.a_rollout_ready(),
    ]
    async with services(bus, object_settings, tmp_path) as urls, AsyncSafactory(*urls) as waiting:
        for event in events:
            await bus.publish(event)
        await until(
            lambda: waiting.session(builders.SESSION), lambda view: bool(view["rewards"] and view["trajectory"])
        )
        await until(lambda: waiting.rollouts(builders.JOB), bool)

        def ask() -> None:
            with Safactory(*urls) as client:
                assert client.session(builders.SESSION)["gap"] is False
                assert client.steps(builders.SESSION)[0]["seq"] == 1
                assert client.rewards(builders.SESSION)[0]["score"] == 10.0
                assert client.metrics(builders.JOB)[0]["values"] == {"loss": 0.5}
                assert client.metrics(builders.JOB, after_step=1000) == []
                assert client.weights(builders.JOB)[0]["version"] == "0.1"
                assert client.rollouts(builders.JOB)[0]["type"] == "rollout.ready"
                assert "calls" in client.time_spent(builders.JOB)

        await asyncio.to_thread(ask)


async def test_refusals_say_what_is_wrong_and_silence_says_where(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    async with services(bus, object_settings, tmp_path) as urls, AsyncSafactory(*urls) as client:
        with pytest.raises(ConfigError, match=r"nowhere\.jsonl"):
            await client.submit(a_request(dataset="/nowhere.jsonl"))
        with pytest.raises(NotFoundError, match="no job nobody"):
            await client.cancel("nobody", "why not")
        with pytest.raises(NotFoundError, match="no job nobody in the archive"):
            await client.resume("nobody")
        with pytest.raises(ConfigError, match="is not a session id"):
            await client.session("nobody")
    async with AsyncSafactory(NOWHERE, NOWHERE) as client:
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9/v1/jobs"):
            await client.jobs()
    with Safactory(NOWHERE, NOWHERE) as client_there, pytest.raises(ServiceError, match="safactory status"):
        client_there.archived_jobs()


async def test_audit_lists_what_is_missing_and_exits_with_1(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed = builders.a_session_queued(attempt=2)
    ended = builders.a_session_ended(last_seq=3, reason=EndReason.SUCCEEDED)
    async with services(bus, object_settings, tmp_path) as urls, AsyncSafactory(*urls) as client:
        for event in (builders.a_job_submitted(), builders.a_session_queued(), ended, resumed):
            await bus.publish(event)
        await bus.publish(builders.a_step_recorded(seq=1))
        await until(lambda: client.audit(builders.JOB), lambda answer: answer["ledger_records"] == 5)
        plan = StackPlan(
            home=tmp_path,
            token_key="",
            processes=[],
            urls={"scheduler": urls.scheduler, "dataelf": urls.dataelf},
            bus_servers=bus.settings.servers,
            weights_addresses=[],
            routes=[],
        )
        stack_file.write(tmp_path, plan, {})
        assert await asyncio.to_thread(jobs.audit, builders.JOB, tmp_path, as_json=False) == 1
    said = capsys.readouterr().out
    assert f"SHORT session {builders.SESSION} attempt 1: 1 steps of 3 (highest 1)" in said
    assert f"SHORT session {builders.SESSION}: attempt 2 was queued and has no ending" in said
    assert "incomplete: 1 of 1 sessions ended, 1 steps" in said
