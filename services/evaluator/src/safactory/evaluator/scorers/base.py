"""What a scorer is, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from safactory.evaluator.scoring_case import ScoringAnswer, ScoringCase


@dataclass(frozen=True)
class Judgement:
    """A scorer's answer with its origin."""

    scorer: str
    """Its name, e.g. `rule`."""
    scorer_version: str
    """Digest of what it scores by; empty when there is nothing."""
    answer: ScoringAnswer
    wall_s: float = 0.0
    """Scoring alone, without the wait for a free process."""


class Scorer(Protocol):
    """One way of scoring an attempt."""

    async def score(self, case: ScoringCase) -> Judgement:
        """Judge a case; an evaluator that fails is an answer with an error, not an exception.

        Raises:
            ServiceError: no evaluator could be run at all.
        """
        ...

    async def end(self) -> None:
        """Give up whatever is kept between cases."""
        ...
