"""`RuleScorer`: scores with the environment's `rule_evaluator.py`, in the processes of a `ScoringPool`."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from safactory.contracts.errors import EvaluatorError
from safactory.evaluator.scorers.base import Judgement
from safactory.evaluator.scoring_case import ScoringAnswer, ScoringCase
from safactory.evaluator.scoring_pool import ScoringPool

NAME = "rule"


class RuleScorer:
    """Scores by rules."""

    def __init__(self, pool: ScoringPool) -> None:
        self._pool = pool

    async def score(self, case: ScoringCase) -> Judgement:
        """Judge a case; an evaluator that fails is an answer with an error.

        Raises:
            ServiceError: no process could be started.
        """
        version = await asyncio.to_thread(_digest, case.evaluator_path)
        if not version:
            folder = Path(case.evaluator_path).parent if case.evaluator_path else f"the folder of {case.environment}"
            return Judgement(NAME, "", ScoringAnswer(error=f"no rule_evaluator.py in {folder}"))
        try:
            answer, wall_s = await self._pool.score(case)
        except EvaluatorError as error:
            return Judgement(NAME, version, ScoringAnswer(error=_told(case, str(error))))
        if answer.error:
            answer = ScoringAnswer(error=_told(case, answer.error))
        return Judgement(NAME, version, answer, wall_s)

    async def end(self) -> None:
        """End the processes."""
        await self._pool.end()


def _told(case: ScoringCase, error: str) -> str:
    return f"{Path(case.evaluator_path).parent.name}/{Path(case.evaluator_path).name} {error}"


def _digest(path: str) -> str:
    """Return the digest of an evaluator's source, empty when there is no such file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""
