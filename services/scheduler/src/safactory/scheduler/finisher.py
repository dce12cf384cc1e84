"""`Finisher`: from a worker's report to a session's ending: seal, wait for the score, retry or end.

Every session gets exactly one ending, whatever fails on the way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine

from safactory.contracts.endings import EndReason
from safactory.contracts.jobs import JobEnded, JobMode
from safactory.contracts.rewards import RewardScored
from safactory.contracts.runner import RunOutcome
from safactory.contracts.sessions import SessionEnded, SessionFinished
from safactory.infra.health import counter
from safactory.infra.logs import log_context
from safactory.scheduler.ending import Ending, ending_of, scored_reason
from safactory.scheduler.gateway_client import GatewayClient
from safactory.scheduler.job_book import Job, Phase, Session
from safactory.scheduler.journal import Journal
from safactory.scheduler.settings import SchedulerSettings

logger = logging.getLogger(__name__)

ENDED = counter("scheduler_sessions_ended", "Sessions by their ending", "reason")
RETRIES = counter("scheduler_sessions_retried", "Attempts that were followed by another", "reason")


class Finisher:
    """Ends attempts."""

    def __init__(self, journal: Journal, gateway: GatewayClient, settings: SchedulerSettings) -> None:
        self._journal = journal
        self._gateway = gateway
        self._reward_wait_s = settings.reward_wait_s
        self._retry_delay_s = settings.retry_delay_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Leave unfinished work to the next start, which finds it on the bus."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self, job: Job, session: Session, outcome: RunOutcome) -> None:
        """Take a worker's report; returns when it is durable, and goes on in the background."""
        task = self._spawn(self._take_report(job, session, outcome), f"finish-{session.session_id}")
        # A worker that hangs up in the middle must not leave a session that is finished and never sealed.
        await asyncio.shield(task)

    async def _take_report(self, job: Job, session: Session, outcome: RunOutcome) -> None:
        queued = session.queued
        if session.phase is not Phase.LEASED:
            return
        await self._journal.record(
            SessionFinished(
                session_id=queued.session_id,
                attempt=queued.attempt,
                job_id=queued.job_id,
                group_id=queued.group_id,
                environment=queued.environment,
                outcome=outcome,
            )
        )
        self.seal_later(job, session)

    def seal_later(self, job: Job, session: Session) -> None:
        """Seal a finished attempt, in the background."""
        self._spawn(self._seal(job, session), f"seal-{session.session_id}")

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def score(self, reward: RewardScored) -> None:
        """Take an evaluator's verdict; one that comes before the seal waits for it."""
        self._journal.book.apply(reward)
        found = self._journal.book.session(reward.session_id)
        if found and found[1].phase is Phase.SEALED and found[1].queued.attempt == reward.attempt:
            await self._end_scored(*found)

    async def give_up_score(self, job: Job, session: Session) -> None:
        """End an attempt whose score did not come in time."""
        cause = f"no score within {self._reward_wait_s:g} s of sealing: is the evaluator running?"
        await self.end(job, session, Ending(EndReason.EVALUATOR_ERROR, cause, False))

    async def end(self, job: Job, session: Session, ending: Ending, score: float | None = None) -> None:
        """End an attempt: another one follows, where that can help, or the session is over."""
        queued = session.queued
        if session.phase is Phase.ENDED:
            return
        if _may_retry(job, session, ending):
            await asyncio.sleep(self._retry_delay_s * 4 ** (queued.attempt - 1))
        if _may_retry(job, session, ending):
            RETRIES.labels(ending.reason).inc()
            logger.info(
                "session %s: attempt %s ended: %s: %s", queued.session_id, queued.attempt, ending.reason, ending.cause
            )
            await self._journal.record(queued.model_copy(update={"attempt": queued.attempt + 1}))
            return
        sealed, outcome = session.sealed, session.outcome
        event = SessionEnded(
            session_id=queued.session_id,
            attempt=queued.attempt,
            job_id=queued.job_id,
            group_id=queued.group_id,
            environment=queued.environment,
            reason=ending.reason,
            cause=ending.cause,
            score=score,
            last_seq=sealed.last_seq if sealed else 0,
            prompt_tokens=sealed.prompt_tokens if sealed else 0,
            completion_tokens=sealed.completion_tokens if sealed else 0,
            wall_s=outcome.wall_s if outcome else 0.0,
            group_size=queued.group_size,
            mode=queued.mode,
        )
        ENDED.labels(ending.reason).inc()
        await self._journal.record(event)
        await self.end_job_if_done(job)

    async def end_waiting(self, job: Job, reason: str) -> None:
        """End what waits in a cancelled job; what runs is stopped at the deadlines, what ran is still scored."""
        for session in [s for s in job.sessions.values() if s.phase is Phase.QUEUED]:
            await self.end(job, session, Ending(EndReason.CANCELLED, reason, False))
        await self.end_job_if_done(job)

    async def end_job_if_done(self, job: Job) -> None:
        """Say that a job is over when all of its sessions are."""
        unqueued = job.next_group is not None and not job.cancelled and job.spec.mode is JobMode.EVALUATE
        training = job.spec.mode is JobMode.TRAIN and not job.cancelled
        if job.ended or job.open or unqueued or training:
            return
        endings = {reason: count for reason, count in job.endings.items() if count}
        await self._journal.record(
            JobEnded(job_id=job.spec.job_id, resumption=job.resumption, planned=len(job.sessions), endings=endings)
        )

    async def _seal(self, job: Job, session: Session) -> None:
        outcome = session.outcome
        assert outcome is not None, "sealing an attempt that is not finished"
        with log_context(session_id=session.session_id):
            sealed = await self._gateway.seal(session.queued, outcome.reason)
            ending = ending_of(outcome, sealed)
            # The gateway has published the seal itself; here it only moves the book on.
            session.score_by_s = time.monotonic() + session.queued.evaluation_timeout_s + self._reward_wait_s
            self._journal.book.apply(sealed)
            if not ending.reason.scored:
                await self.end(job, session, ending)
            elif session.reward is not None:
                await self._end_scored(job, session)

    async def _end_scored(self, job: Job, session: Session) -> None:
        reward, outcome, sealed = session.reward, session.outcome, session.sealed
        assert reward and outcome and sealed, "scoring an attempt that is not sealed"
        before = ending_of(outcome, sealed)
        if not before.reason.scored:
            return
        cause = reward.error or reward.reason or before.cause
        await self.end(job, session, Ending(scored_reason(before.reason, reward), cause, False), reward.score)


def _may_retry(job: Job, session: Session, ending: Ending) -> bool:
    """Tell whether another attempt follows."""
    overdue = job.groups[session.queued.group_id].overdue
    return ending.retry and session.queued.attempt < job.spec.attempts_max and not job.cancelled and not overdue
