"""`/v1/jobs`: submit, look, cancel, resume."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field

from safactory.contracts.errors import ConfigError, SafactoryError
from safactory.contracts.event import Event, Model
from safactory.contracts.jobs import JobRequest, JobResumed, JobSubmitted
from safactory.contracts.topics import EVENT_OF
from safactory.infra.objects import Objects
from safactory.scheduler.admitter import Admitter
from safactory.scheduler.job_book import Job, Session
from safactory.scheduler.job_spec import resolve
from safactory.scheduler.job_status import JobStatus, status_of
from safactory.scheduler.journal import Journal
from safactory.scheduler.lease_book import LeaseBook


class Cancellation(Model):
    """The body of `/cancel`."""

    reason: str = "cancelled by a person"


class ArchivedEvent(Model):
    """One event of a job as the archive keeps it."""

    type: str
    body: str


class Resumption(Model):
    """The body of `/resume`: what the archive has of the job, for a scheduler whose bus does not go back so far."""

    events: list[ArchivedEvent] = Field(default_factory=list)


class NotFound(Exception):
    """No such job."""


def job_routes(journal: Journal, objects: Objects, admitter: Admitter, leases: LeaseBook) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    book = journal.book

    def find(job_id: str) -> Job:
        if job_id not in book.jobs:
            raise NotFound(job_id)
        return book.jobs[job_id]

    @router.post("/v1/jobs", status_code=201)
    async def submit(request: JobRequest) -> JobStatus:
        spec = await resolve(request, str(uuid.uuid4()), objects)
        await journal.record(JobSubmitted(job_id=spec.job_id, spec=spec))
        await admitter.admit_all()
        return status_of(find(spec.job_id), leases)

    @router.get("/v1/jobs")
    async def list_jobs() -> list[JobStatus]:
        return [status_of(job, leases) for job in book.jobs.values()]

    @router.get("/v1/jobs/{job_id}")
    async def status(job_id: str) -> JobStatus:
        return status_of(find(job_id), leases)

    @router.post("/v1/jobs/{job_id}/cancel")
    async def cancel(job_id: str, body: Annotated[Cancellation, Field(default_factory=Cancellation)]) -> JobStatus:
        await admitter.cancel(find(job_id), body.reason)
        return status_of(find(job_id), leases)

    @router.post("/v1/jobs/{job_id}/resume")
    async def resume(job_id: str, body: Resumption) -> JobStatus:
        await _restore(journal, job_id, body)
        job = find(job_id)
        resumed = JobResumed(job_id=job_id, resumption=str(uuid.uuid4()))
        again = [session.queued for session in job.sessions.values() if _unfinished(session)]
        # In one breath: a job that goes on and has nothing open would be found ended.
        await journal.record(resumed, *(queued.model_copy(update={"attempt": queued.attempt + 1}) for queued in again))
        await admitter.admit_all()
        return status_of(job, leases)

    return router


async def _restore(journal: Journal, job_id: str, body: Resumption) -> None:
    if job_id in journal.book.jobs:
        return
    classes = [(EVENT_OF.get(archived.type), archived) for archived in body.events]
    events: list[Event] = [kind.from_json(archived.body.encode()) for kind, archived in classes if kind]
    # Job before sessions, and each session's attempts in order: the fold has no other order to go by. In one breath:
    # a job that has none of its sessions yet would be given new ones.
    submitted = [event for event in events if event.type == JobSubmitted.type]
    await journal.record(*submitted, *(event for event in events if event.type.startswith("session.")))


def _unfinished(session: Session) -> bool:
    return session.ended is not None and session.ended.score is None and session.ended.reason.value != "empty"


async def refused(_: Request, error: Exception) -> JSONResponse:
    """Turn our errors into answers that name file, line and field."""
    if isinstance(error, NotFound):
        return JSONResponse({"error": {"type": "not_found", "message": f"no job {error}"}}, status_code=404)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"][1:]))
        return JSONResponse({"error": {"type": "ConfigError", "message": f"{field}: {first['msg']}"}}, status_code=422)
    body: dict[str, object] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ConfigError):
        body |= {"file": error.file, "line": error.line, "field": error.field}
    retryable = isinstance(error, SafactoryError) and error.retryable
    return JSONResponse({"error": body}, status_code=503 if retryable else 422)
