"""Deadlines: leases without a heartbeat, groups that take too long, and scores that do not come."""

from __future__ import annotations

import asyncio
import logging
import time

from safactory.contracts.endings import EndReason
from safactory.contracts.runner import RunOutcome
from safactory.scheduler.admitter import Admitter
from safactory.scheduler.ending import Ending
from safactory.scheduler.finisher import Finisher
from safactory.scheduler.job_book import Group, Job, Phase, Session
from safactory.scheduler.journal import Journal
from safactory.scheduler.lease_book import LeaseBook

logger = logging.getLogger(__name__)


class Deadlines:
    """Looks at all of them every `tick_s`."""

    def __init__(
        self, journal: Journal, leases: LeaseBook, admitter: Admitter, finisher: Finisher, tick_s: float
    ) -> None:
        self._journal = journal
        self._leases = leases
        self._admitter = admitter
        self._finisher = finisher
        self._tick_s = tick_s

    async def run(self) -> None:
        """Look again and again; an unforeseen failure of one look must not be the last."""
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                await self.tick()
            except Exception:
                logger.exception("a look at the deadlines failed")

    async def tick(self) -> None:
        """Look once."""
        self._leases.account()
        await self._admitter.admit_all()
        for lease in self._leases.expired():
            self._leases.take_back(lease.lease_id, lease.fence)
            found = self._journal.book.session(lease.session_id)
            if found:
                cause = f"worker {lease.worker_id} gave no sign of life: its lease expired"
                await self._finisher.finish(*found, RunOutcome(reason=EndReason.INFRASTRUCTURE_ERROR, cause=cause))
        for job in list(self._journal.book.jobs.values()):
            if not job.ended:
                await self._look_at(job)

    async def _look_at(self, job: Job) -> None:
        moment = time.monotonic()
        for session in [s for s in job.sessions.values() if s.phase in (Phase.SEALED, Phase.LEASED)]:
            if session.phase is Phase.SEALED and session.score_by_s and moment > session.score_by_s:
                await self._finisher.give_up_score(job, session)
            elif session.phase is Phase.LEASED and job.cancelled:
                await self._stop(job, session, EndReason.CANCELLED, job.cancelled)
        for group in [g for g in job.groups.values() if g.started_s is not None]:
            if moment - (group.started_s or moment) > job.spec.group_deadline_s:
                group.started_s, group.overdue = None, True
                await self._close(job, group)

    async def _close(self, job: Job, group: Group) -> None:
        cause = f"its group's deadline of {job.spec.group_deadline_s:g} s passed"
        for session in (job.sessions[session_id] for session_id in group.sessions):
            if session.phase is Phase.QUEUED:
                await self._finisher.end(job, session, Ending(EndReason.CANCELLED, cause, False))
            elif session.phase is Phase.LEASED:
                await self._stop(job, session, EndReason.TIMEOUT, cause)

    async def _stop(self, job: Job, session: Session, reason: EndReason, cause: str) -> None:
        """Take an attempt from its worker: the next heartbeat tells it to kill the runner."""
        if session.lease is None or self._leases.take_back(session.lease.lease_id, session.lease.fence) is None:
            return  # its worker's report is on the way into the book
        await self._finisher.finish(job, session, RunOutcome(reason=reason, cause=cause))
