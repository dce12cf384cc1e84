"""Questions about jobs, sessions and runs."""

from __future__ import annotations

import uuid

from fastapi import APIRouter, HTTPException
from pydantic import JsonValue

from safactory.contracts.jobs import JobSpec
from safactory.dataelf import job_queries, run_queries, session_queries
from safactory.dataelf.audit import Audit, audit
from safactory.dataelf.house import House

Facts = dict[str, JsonValue]


def query_routes(house: House) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1")
    _add_jobs(router, house)
    _add_sessions(router, house)
    _add_runs(router, house)
    return router


def _add_jobs(router: APIRouter, house: House) -> None:
    async def spec_of(job_id: str) -> JobSpec:
        spec = await job_queries.job_spec(house.archive, job_id)
        if spec is None:
            raise HTTPException(404, f"no job {job_id} in the archive")
        return spec

    @router.get("/jobs")
    async def jobs() -> list[Facts]:
        return await job_queries.job_list(house.archive)

    @router.get("/jobs/{job_id}")
    async def job(job_id: str) -> JobSpec:
        return await spec_of(job_id)

    @router.get("/jobs/{job_id}/results")
    async def results(job_id: str) -> job_queries.JobResults:
        return await job_queries.job_results(house.archive, await spec_of(job_id))

    @router.get("/jobs/{job_id}/sessions")
    async def sessions(job_id: str, limit: int = 100) -> list[Facts]:
        return await job_queries.job_sessions(house.archive, job_id, limit)

    @router.get("/jobs/{job_id}/events")
    async def events(job_id: str) -> list[dict[str, str]]:
        await spec_of(job_id)
        return await job_queries.job_events(house.archive, job_id)

    @router.get("/jobs/{job_id}/audit")
    async def job_audit(job_id: str) -> Audit:
        return await audit(house.archive, await spec_of(job_id))


def _add_sessions(router: APIRouter, house: House) -> None:
    def known(session_id: str) -> str:
        try:
            return str(uuid.UUID(session_id))
        except ValueError:
            raise HTTPException(422, f"{session_id!r} is not a session id (a UUID)") from None

    @router.get("/sessions/{session_id}")
    async def session(session_id: str) -> session_queries.SessionView:
        view = await session_queries.session_view(house.archive, house.objects, known(session_id))
        if view is None:
            raise HTTPException(404, f"no session {session_id} in the archive")
        return view

    @router.get("/sessions/{session_id}/steps")
    async def steps(session_id: str) -> list[Facts]:
        return await session_queries.session_steps(house.archive, known(session_id))

    @router.get("/sessions/{session_id}/rewards")
    async def rewards(session_id: str) -> list[Facts]:
        return await session_queries.session_rewards(house.archive, known(session_id))


def _add_runs(router: APIRouter, house: House) -> None:
    @router.get("/runs/{run_id}/metrics")
    async def metrics(run_id: str, after_step: int = -1) -> list[Facts]:
        return await run_queries.run_metrics(house.archive, run_id, after_step)

    @router.get("/runs/{run_id}/weights")
    async def weights(run_id: str) -> list[Facts]:
        return await run_queries.run_weights(house.archive, run_id)

    @router.get("/runs/{run_id}/rollouts")
    async def rollouts(run_id: str) -> list[Facts]:
        return await run_queries.run_rollouts(house.archive, run_id)

    @router.get("/runs/{run_id}/time")
    async def time(run_id: str) -> Facts:
        return await run_queries.time_spent(house.archive, run_id)
