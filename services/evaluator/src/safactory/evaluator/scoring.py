"""`Scoring`: takes attempts when they are ready, has them scored, and publishes the rewards.

Nothing is judged before the consumer has caught up with what was there at its start: until then an attempt may yet
turn out to be over. Each attempt that is given out gets exactly one reward event, with a score or with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine

from safactory.contracts.errors import BusError, SafactoryError
from safactory.contracts.rewards import RewardScored
from safactory.contracts.runner import SimulationStartResult
from safactory.contracts.sessions import SessionFinished, SessionQueued
from safactory.evaluator.assembly import assemble, read_object
from safactory.evaluator.attempts import Attempt, Attempts
from safactory.evaluator.scorers.base import Judgement, Scorer
from safactory.evaluator.scorers.rule import NAME
from safactory.evaluator.scoring_case import ScoringAnswer, ScoringCase
from safactory.infra.health import counter
from safactory.infra.logs import log_context
from safactory.infra.objects import Objects

logger = logging.getLogger(__name__)

REWARDS = counter("evaluator_rewards", "Attempts judged, by whether there is a score", "what")

LOOK_EVERY_S = 1.0
"""Between two looks for attempts that wait in vain."""
TRIES = 5
"""For what a retry can help, such as an object store that is away."""
BACKOFF_S = 0.5

Publish = Callable[[RewardScored], Awaitable[None]]


class Scoring:
    """Scores attempts, as many at once as the scorer has room for."""

    def __init__(
        self, attempts: Attempts, scorer: Scorer, objects: Objects, publish: Publish, join_wait_s: float
    ) -> None:
        self._attempts = attempts
        self._scorer = scorer
        self._objects = objects
        self._publish = publish
        self._join_wait_s = join_wait_s
        self._news = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Have it look now: a record came."""
        self._news.set()

    async def run(self, caught_up: Awaitable[None]) -> None:
        """Score until cancelled."""
        await caught_up
        while True:
            self._news.clear()
            for attempt in self._attempts.take_ready():
                self._begin(self._score(attempt))
            for attempt in self._attempts.take_overdue(self._join_wait_s):
                self._begin(self._give_up(attempt))
            # Not wait_for(), which in Python 3.11 can lose a cancellation that meets the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._news.wait()

    async def end(self) -> None:
        """Stop; what is not published is scored again after the next start."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._scorer.end()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _score(self, attempt: Attempt) -> None:
        queued, finished = attempt.queued, attempt.finished
        assert queued is not None and finished is not None
        with log_context(session_id=attempt.session_id):
            judgement = await self._judgement(attempt, queued, finished)
            await self._tell(attempt, judgement, finished, queued.pass_score)

    async def _give_up(self, attempt: Attempt) -> None:
        assert attempt.finished is not None
        lacking = ", ".join(attempt.missing[:10])
        error = f"cannot be scored: {lacking} did not arrive within {self._join_wait_s:g} s of its end"
        with log_context(session_id=attempt.session_id):
            # No version: no evaluator has seen it, and a later score by one must be a fact of its own.
            await self._tell(attempt, Judgement(NAME, "", ScoringAnswer(error=error)), attempt.finished, 0.0)

    async def _judgement(self, attempt: Attempt, queued: SessionQueued, finished: SessionFinished) -> Judgement:
        tries = 0
        while True:
            try:
                return await self._scorer.score(await self._case(attempt, queued, finished))
            except SafactoryError as error:
                tries += 1
                if not error.retryable or tries >= TRIES:
                    return Judgement(NAME, "", ScoringAnswer(error=f"cannot be scored: {error}"))
                logger.warning("scoring is tried again: %s", error)
                await asyncio.sleep(BACKOFF_S * 2 ** (tries - 1))

    async def _case(self, attempt: Attempt, queued: SessionQueued, finished: SessionFinished) -> ScoringCase:
        result = finished.outcome.result or SimulationStartResult(session_id=attempt.session_id)
        return ScoringCase(
            evaluator_path=queued.evaluator_path,
            job_id=queued.job_id,
            group_id=queued.group_id,
            environment=queued.environment,
            route=queued.route,
            pass_score=queued.pass_score,
            timeout_s=queued.evaluation_timeout_s,
            row=await read_object(self._objects, queued.task),
            start_result=result,
            trajectory=await assemble(self._objects, list(attempt.steps.values())),
        )

    async def _tell(self, attempt: Attempt, judgement: Judgement, finished: SessionFinished, pass_score: float) -> None:
        if not self._attempts.is_open(attempt):
            return
        verdict = judgement.answer.verdict
        reward = RewardScored(
            session_id=attempt.session_id,
            attempt=attempt.number,
            job_id=finished.job_id,
            group_id=finished.group_id,
            environment=finished.environment,
            scorer=judgement.scorer,
            scorer_version=judgement.scorer_version,
            score=verdict.score if verdict else None,
            raw_score=verdict.raw_score if verdict else None,
            passed=verdict is not None and verdict.score >= pass_score,
            reason=verdict.reason if verdict else "",
            error=judgement.answer.error,
            artifacts=verdict.artifacts if verdict else {},
            wall_s=judgement.wall_s,
        )
        if reward.error:
            logger.warning("no score: %s", reward.error)
        while True:
            try:
                await self._publish(reward)
            except BusError as error:
                logger.error("the reward waits: %s", error)
                await asyncio.sleep(BACKOFF_S)
            else:
                break
        REWARDS.labels("score" if verdict else "error").inc()
        # Its records stay uncommitted until its session ends, but need not fill memory until then.
        attempt.steps.clear()
