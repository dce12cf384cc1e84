"""`make_scorer()`: the scorer of an evaluator service."""

from __future__ import annotations

from safactory.evaluator.scorers.base import Scorer
from safactory.evaluator.scorers.rule import RuleScorer
from safactory.evaluator.scoring_pool import ScoringPool
from safactory.evaluator.settings import EvaluatorSettings


def make_scorer(settings: EvaluatorSettings) -> Scorer:
    """Return the scorer by rule evaluators, with a pool of its own."""
    return RuleScorer(ScoringPool(settings))
