"""What a rule evaluator may return, and what is refused."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import numpy
import pytest

from safactory.contracts.errors import EvaluatorError
from safactory.evaluator.verdict import Verdict, verdict_of


@pytest.mark.parametrize(
    ("output", "score", "raw"),
    [
        (7, 7.0, 7.0),
        (7.5, 7.5, 7.5),
        (-3, 0.0, -3.0),
        (250, 10.0, 250.0),
        (numpy.float32(2.5), 2.5, 2.5),
        (numpy.int64(4), 4.0, 4.0),
        ({"score": 3}, 3.0, 3.0),
        ({"reward": 3}, 3.0, 3.0),
        ({"normalized_score_10": 4, "score": 0.4, "reward": 1}, 4.0, 4.0),
        ({"score": 4, "raw_score": 0.4}, 4.0, 0.4),
        ({"score": None, "reward": 2}, 2.0, 2.0),
        ({"score": 0.0, "status": "failed"}, 0.0, 0.0),
    ],
)
def test_numbers_and_mappings_are_read_and_clamped(output: object, score: float, raw: float) -> None:
    verdict = verdict_of(output)
    assert verdict.score == score
    assert verdict.raw_score == pytest.approx(raw)


@pytest.mark.parametrize(
    "output",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        True,
        numpy.bool_(True),
        "7",
        None,
        [7],
        Decimal(7),
        1j,
        {},
        {"score": "7"},
        {"score": True},
        {"score": float("nan")},
        {"score": 1, "raw_score": float("inf")},
        {"score": 1, "status": "error", "reason": "no display"},
        {"status": "failed", "reason": "no display"},
    ],
)
def test_whatever_is_no_finite_number_is_refused(output: object) -> None:
    with pytest.raises(EvaluatorError):
        verdict_of(output)


def test_the_reason_of_a_failure_is_told() -> None:
    with pytest.raises(EvaluatorError, match="no display"):
        verdict_of({"status": "failed", "reason": "no display"})


@pytest.mark.parametrize(
    "artifacts",
    [{"x": float("nan")}, {"x": object()}, {"x": "y" * 100_000}, [1], dataclasses.make_dataclass("D", [])()],
)
def test_bad_artifacts_cost_no_score(artifacts: object) -> None:
    verdict = verdict_of({"score": 5, "artifacts": artifacts})
    assert verdict.score == 5
    assert "dropped" in verdict.artifacts
    Verdict.model_validate_json(verdict.model_dump_json())
