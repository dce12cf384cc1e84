"""The gRPC side of the scheduler: `Leases`, for workers."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import grpc.aio
from pydantic import ValidationError

from safactory.contracts.endings import EndReason
from safactory.contracts.rpc.v1 import leases_pb2, leases_pb2_grpc
from safactory.contracts.runner import RunOutcome
from safactory.contracts.sessions import SessionLeased
from safactory.infra.health import counter
from safactory.scheduler.finisher import Finisher
from safactory.scheduler.job_book import Job, Phase, Session
from safactory.scheduler.journal import Journal
from safactory.scheduler.lease_book import LeaseBook
from safactory.scheduler.settings import SchedulerSettings
from safactory.scheduler.start_request import start_request

FENCED = counter("scheduler_fenced_reports", "Reports of workers that did not hold the lease any more")

Context = grpc.aio.ServicerContext[Any, Any]


class LeasesServicer(leases_pb2_grpc.LeasesServicer):
    """Gives attempts to workers and takes their reports."""

    def __init__(
        self,
        settings: SchedulerSettings,
        secret: str,
        journal: Journal,
        leases: LeaseBook,
        finisher: Finisher,
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._journal = journal
        self._leases = leases
        self._finisher = finisher

    async def Acquire(  # noqa: N802  # the stubs' name
        self, request: leases_pb2.AcquireRequest, context: Context
    ) -> leases_pb2.AcquireResponse:
        """Wait for attempts and lease them."""
        self._leases.seen(request.worker_id, request.slots)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request.wait_s):
                while not self._waiting():
                    self._journal.queued.clear()
                    await self._journal.queued.wait()
        self._leases.seen(request.worker_id, request.slots)
        granted = [self._grant(job, session, request.worker_id) for job, session in self._take(request.max_leases)]
        # Apply before the first await: no other worker may be given the same attempt.
        await self._journal.record(*(event for _, _, event in granted))
        return leases_pb2.AcquireResponse(leases=[self._lease(*lease) for lease in granted])

    async def Heartbeat(  # noqa: N802
        self, request: leases_pb2.HeartbeatRequest, context: Context
    ) -> leases_pb2.HeartbeatResponse:
        """Prolong leases; name those that are over."""
        self._leases.seen(request.worker_id)
        stop = [ref.lease_id for ref in request.leases if not self._leases.renew(ref.lease_id, ref.fence)]
        return leases_pb2.HeartbeatResponse(stop=stop)

    async def Complete(  # noqa: N802
        self, request: leases_pb2.CompleteRequest, context: Context
    ) -> leases_pb2.CompleteResponse:
        """Take a worker's report."""
        self._leases.seen(request.worker_id)
        found = self._journal.book.session(request.session_id)
        lease = self._leases.take_back(request.lease.lease_id, request.lease.fence)
        if lease is None or found is None or found[1].queued.attempt != request.attempt:
            if found and _reported_already(found[1], request):
                return leases_pb2.CompleteResponse(accepted=True)
            FENCED.inc()
            return leases_pb2.CompleteResponse(accepted=False, refusal="fenced: this lease is not held any more")
        await self._finisher.finish(*found, _outcome(request))
        return leases_pb2.CompleteResponse(accepted=True)

    def _waiting(self) -> bool:
        jobs = self._journal.book.jobs.values()
        return any(job.phases[Phase.QUEUED] > 0 and job.rows and not job.cancelled for job in jobs)

    def _take(self, count: int) -> list[tuple[Job, Session]]:
        """Take from the queues of all jobs in turn, so that no job waits for another to end."""
        taken: list[tuple[Job, Session]] = []
        jobs = [job for job in self._journal.book.jobs.values() if job.queue and job.rows and not job.cancelled]
        while jobs and len(taken) < count:
            for job in jobs[: count - len(taken)]:
                session = _next(job)
                if session is None:
                    jobs.remove(job)
                else:
                    taken.append((job, session))
        return taken

    def _grant(self, job: Job, session: Session, worker_id: str) -> tuple[Job, Session, SessionLeased]:
        queued = session.queued
        self._journal.book.fence += 1
        event = SessionLeased(
            session_id=queued.session_id,
            attempt=queued.attempt,
            job_id=queued.job_id,
            group_id=queued.group_id,
            environment=queued.environment,
            worker_id=worker_id,
            lease_id=str(uuid.uuid4()),
            fence=self._journal.book.fence,
        )
        self._leases.grant(event)
        return job, session, event

    def _lease(self, job: Job, session: Session, event: SessionLeased) -> leases_pb2.Lease:
        launch = job.environment(event.environment).launch
        request = start_request(job, session, event, self._settings, self._secret)
        return leases_pb2.Lease(
            lease_id=event.lease_id,
            fence=event.fence,
            session_id=event.session_id,
            job_id=event.job_id,
            group_id=event.group_id,
            attempt=event.attempt,
            environment=event.environment,
            heartbeat_every_s=self._settings.heartbeat_every_s,
            timeout_s=job.spec.session_timeout_s,
            launch_json=launch.model_dump_json(),
            request_json=request.model_dump_json(),
        )


def _next(job: Job) -> Session | None:
    while job.queue:
        session = job.sessions[job.queue.popitem(last=False)[0]]
        if session.phase is Phase.QUEUED:
            return session
    return None


def _reported_already(session: Session, request: leases_pb2.CompleteRequest) -> bool:
    """Tell whether a report is a repeat; what the scheduler itself put in its place is none."""
    held = session.lease is not None and session.lease.fence == request.lease.fence
    return held and session.outcome is not None and session.outcome == _outcome(request)


def _outcome(request: leases_pb2.CompleteRequest) -> RunOutcome:
    try:
        return RunOutcome.model_validate_json(request.outcome_json)
    except ValidationError as error:
        cause = f"worker {request.worker_id} sent an unreadable report: {error.errors(include_url=False)[0]['msg']}"
        return RunOutcome(reason=EndReason.INFRASTRUCTURE_ERROR, cause=cause)
