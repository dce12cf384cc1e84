"""Every session gets one ending, whatever fails on the way: real HTTP and gRPC, a real gateway and a real broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from safactory.contracts.jobs import JobEnded, JobSubmitted
from safactory.contracts.sessions import SessionEnded, SessionLeased, SessionQueued, SessionSealed
from safactory.testkit import builders

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.flows.conftest import Factory

LEASE_S = 1.0


async def test_a_session_is_leased_played_sealed_scored_and_ended(factory: Factory) -> None:
    async with factory.scheduler():
        job_id = await factory.submit(tasks=2, samples=2)
        leases = await factory.worker.acquire(4)
        assert len({lease.session_id for lease in leases}) == 4
        assert sorted(Counter(lease.group_id for lease in leases).values()) == [2, 2]
        for lease, score in zip(leases, (10.0, 0.0, None, 10.0), strict=True):
            await factory.play(lease, score)
        endings = await factory.endings(4)
        assert Counter(endings.values()) == {"succeeded": 2, "failed": 1, "evaluator_error": 1}
        (ended,) = await factory.recorder.wait_for(JobEnded)
        assert (ended.planned, sum(ended.endings.values())) == (4, 4)
        status = await factory.status(job_id, lambda found: found["state"] == "ended")
        assert (status["scored"], status["mean_score"]) == (3, pytest.approx(20 / 3))
        assert await factory.worker.nothing_to_do()
    assert [sealed.last_seq for sealed in factory.recorder.of(SessionSealed)] == [1] * 4


async def test_a_session_without_a_model_call_is_empty_and_waits_for_no_score(factory: Factory) -> None:
    async with factory.scheduler():
        await factory.submit()
        (lease,) = await factory.worker.acquire()
        assert (await factory.worker.complete(lease)).accepted
        assert list((await factory.endings(1)).values()) == ["empty"]


async def test_a_worker_that_vanished_loses_its_session_and_its_late_report_is_fenced(factory: Factory) -> None:
    async with factory.scheduler(LEASE_S):
        await factory.submit()
        (lost,) = await factory.worker.acquire()
        other = factory.new_worker("worker-1")
        (again,) = await other.acquire()
        assert (again.session_id, again.attempt) == (lost.session_id, 2)
        assert again.fence > lost.fence
        assert await factory.worker.heartbeat(lost) == [lost.lease_id]
        late = await factory.worker.complete(lost)
        assert (late.accepted, late.refusal[:6]) == (False, "fenced")
        await factory.play(again)
        assert await factory.endings(1) == {(lost.session_id, 2): "succeeded"}
        assert (await other.complete(again)).accepted, "a repeated report is answered the same"
        await factory.endings(1)


async def test_a_worker_that_gives_a_sign_of_life_keeps_its_session(factory: Factory) -> None:
    async with factory.scheduler(LEASE_S):
        await factory.submit()
        (lease,) = await factory.worker.acquire()
        for _ in range(6):
            await asyncio.sleep(LEASE_S / 3)
            assert await factory.worker.heartbeat(lease) == []
        await factory.play(lease)
        assert await factory.endings(1) == {(lease.session_id, 1): "succeeded"}


async def test_a_cancelled_job_stops_what_runs_and_ends_what_waits(factory: Factory) -> None:
    async with factory.scheduler():
        job_id = await factory.submit(tasks=3)
        (lease,) = await factory.worker.acquire()
        await factory.post(f"/v1/jobs/{job_id}/cancel", {"reason": "enough"})
        status = await factory.status(job_id, lambda found: found["state"] == "ended")
        assert (status["ended"], status["cause"], status["planned"]) == ({"cancelled": 3}, "enough", 3)
        assert await factory.worker.heartbeat(lease) == [lease.lease_id]
        assert not (await factory.worker.complete(lease)).accepted
        assert set((await factory.endings(3)).values()) == {"cancelled"}
        assert await factory.worker.nothing_to_do()


async def test_a_resumed_job_does_what_was_left_and_nothing_twice(factory: Factory) -> None:
    async with factory.scheduler():
        job_id = await factory.submit(tasks=4)
        (first,) = await factory.worker.acquire()
        await factory.play(first)
        await factory.endings(1)
        await factory.post(f"/v1/jobs/{job_id}/cancel", {})
        await factory.endings(4)
        await factory.post(f"/v1/jobs/{job_id}/resume", {})
        leases = await factory.worker.acquire(3)
        assert await factory.worker.nothing_to_do()
        assert len({lease.session_id for lease in leases} | {first.session_id}) == 4
        for lease in leases:
            await factory.play(lease)
        endings = await factory.endings(7)
        newest = {session: reason for (session, _), reason in sorted(endings.items())}
        assert set(newest.values()) == {"succeeded"}
        assert len(await factory.recorder.wait_for(JobEnded, 2)) == 2


@pytest.mark.parametrize(
    ("reason", "attempts_max", "attempts"),
    [("infrastructure_error", 3, 3), ("environment_error", 2, 2), ("agent_error", 3, 1), ("timeout", 3, 1)],
)
async def test_what_a_retry_can_help_is_tried_again_as_often_as_allowed(
    factory: Factory, reason: str, attempts_max: int, attempts: int
) -> None:
    async with factory.scheduler():
        await factory.submit(attempts_max=attempts_max)
        for attempt in range(1, attempts + 1):
            (lease,) = await factory.worker.acquire()
            assert lease.attempt == attempt
            await factory.worker.complete(lease, reason=reason, cause=f"number {attempt}")
        assert await factory.endings(1) == {(lease.session_id, attempts): reason}
        (ended,) = factory.recorder.of(SessionEnded)
        assert ended.cause == f"number {attempts}"
        assert await factory.worker.nothing_to_do()


async def test_a_groups_deadline_stops_what_runs_ends_what_waits_and_is_the_last_word(factory: Factory) -> None:
    async with factory.scheduler():
        await factory.submit(samples=3, group_deadline_s=0.6)
        running, failing = await factory.worker.acquire(2)
        for _ in range(4):
            await asyncio.sleep(0.1)
            await factory.worker.heartbeat(running, failing)
        await factory.worker.complete(failing, reason="infrastructure_error")
        endings = await factory.endings(3)
        assert endings.pop((running.session_id, 1)) == "timeout"
        assert set(endings.values()) <= {"cancelled", "infrastructure_error"}
        assert await factory.worker.heartbeat(running) == [running.lease_id]
        assert len(await factory.recorder.wait_for(JobEnded)) == 1


async def test_a_restart_keeps_jobs_leases_fences_and_what_was_about_to_end(factory: Factory) -> None:
    async with factory.scheduler():
        job_id = await factory.submit(tasks=4)
        held, finished, scored = await factory.worker.acquire(3)
        await factory.play(scored)
        await factory.worker.call_model(finished)
        await factory.worker.complete(finished)
        await factory.recorder.wait_for(SessionSealed, 2)
        await factory.endings(1)
    beating = asyncio.create_task(factory.worker.heartbeat(held))
    await factory.score(finished)
    async with factory.scheduler():
        assert await beating == [], "a worker that survived keeps its session"
        await factory.endings(2)
        assert (await factory.worker.complete(finished)).accepted, "the report is known"
        (last,) = await factory.worker.acquire()
        assert last.fence > max(lease.fence for lease in (held, finished, scored))
        assert await factory.worker.heartbeat(held) == []
        await factory.play(held)
        await factory.play(last)
        endings = await factory.endings(4)
        assert (len({session for session, _ in endings}), set(endings.values())) == (4, {"succeeded"})
        assert (await factory.status(job_id, lambda found: found["state"] == "ended"))["ended"] == {"succeeded": 4}
    assert len(factory.recorder.of(SessionQueued)) == len(factory.recorder.of(SessionLeased)) == 4


async def test_a_report_that_its_worker_broke_off_still_leads_to_one_ending(factory: Factory) -> None:
    async with factory.scheduler():
        await factory.submit(tasks=12)
        leases = await factory.worker.acquire(12)
        for number, lease in enumerate(leases):
            await factory.worker.call_model(lease)
            call = factory.worker.stub.Complete(factory.worker.report(lease))
            await asyncio.sleep(number * 0.0005)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await call
        for lease in leases:
            await factory.worker.complete(lease)
            await factory.score(lease)
        assert Counter((await factory.endings(12)).values()) == {"succeeded": 12}
        assert len(factory.recorder.of(SessionSealed)) == 12


async def test_training_is_paced_by_what_the_trainer_has_done(factory: Factory) -> None:
    def admitted(count: int) -> Callable[[dict[str, Any]], bool]:
        return lambda found: found["groups"]["admitted"] == count

    async with factory.scheduler():
        training = {"steps": 2, "groups_per_step": 2, "max_staleness": 1}
        job_id = await factory.submit(tasks=3, samples=2, mode="train", training=training)
        await factory.status(job_id, admitted(4))
        await asyncio.sleep(0.3)
        await factory.status(job_id, admitted(4))
        groups = list(dict.fromkeys(queued.group_id for queued in factory.recorder.of(SessionQueued)))
        assert len(groups) == 4
        await factory.bus.publish(builders.a_rollout_dropped(group_id=groups[0], job_id=job_id))
        await factory.status(job_id, admitted(5))
        await factory.bus.publish(builders.a_rollout_ready(group_id=groups[1], job_id=job_id))
        await factory.bus.publish(builders.a_weights_published(run_id=job_id, step=1))
        status = await factory.status(job_id, admitted(7))
        assert (status["state"], status["steps_done"]) == ("running", 1)
        await factory.bus.publish(builders.a_weights_published(run_id=job_id, step=2))
        status = await factory.status(job_id, lambda found: found["state"] == "ended")
        assert (status["cause"], status["groups"]) == ("training is done", {"admitted": 7, "ready": 1, "dropped": 1})
        assert status["ended"] == {"cancelled": 14}


async def test_a_bad_job_is_refused_with_its_place_and_leaves_nothing(factory: Factory) -> None:
    async with factory.scheduler():
        await factory.submit()
        rows = factory.folder / "maze" / "rows.jsonl"
        good = rows.read_text()
        rows.write_text('{"n": 1}\nnot json\n')
        config = {"agent_config": {"path": str(factory.folder / "maze" / "maze_config.yaml")}}
        refused = await factory.post("/v1/jobs", config)
        assert refused.status_code == 422
        error = refused.json()["error"]
        assert (error["type"], Path(error["file"]).name, error["line"]) == ("ConfigError", "rows.jsonl", 2)
        misspelt = await factory.post("/v1/jobs", config | {"sampels": 3})
        assert (misspelt.status_code, misspelt.json()["error"]["message"][:7]) == (422, "sampels")
        rows.write_text(good)
        huge = await factory.post("/v1/jobs", config | {"labels": {"note": "x" * 1_100_000}})
        assert (huge.status_code, huge.json()["error"]["type"]) == (422, "PoisonError")
        unknown = await factory.post("/v1/jobs/none/cancel", {})
        assert (unknown.status_code, unknown.json()["error"]["message"]) == (404, "no job none")
    assert len(factory.recorder.of(JobSubmitted)) == 1
