"""`Verdict`: what a rule evaluator's return value means, or why it means nothing.

Accepted are a finite number, or a mapping with one under `normalized_score_10`, `score` or `reward`; the score is
clamped to 0–10. Anything else is refused: an evaluator that gives no number has failed, and a failure is no score.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Real

from pydantic import Field, JsonValue

from safactory.contracts.errors import EvaluatorError
from safactory.contracts.event import Model
from safactory.contracts.rewards import SCORE_MAX

SCORE_KEYS = ("normalized_score_10", "score", "reward")
ARTIFACT_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 4000

_FAILURES = ("error", "timeout", "evaluator_error")
"""Values of `status` by which an evaluator says that it failed, whatever number is beside it."""


class Verdict(Model):
    """One score."""

    score: float = Field(ge=0, le=SCORE_MAX)
    raw_score: float
    """As the evaluator gave it, before the clamp."""
    reason: str = ""
    artifacts: dict[str, JsonValue] = Field(default_factory=dict)


def verdict_of(output: object) -> Verdict:
    """Read a rule evaluator's return value.

    Raises:
        EvaluatorError: it holds no finite number, or says itself that the evaluation failed.
    """
    if not isinstance(output, Mapping):
        value = _finite(output, "the returned value")
        return Verdict(score=_clamped(value), raw_score=value)
    reason = str(output.get("reason") or "")[:REASON_CHARACTERS_MAX]
    status = str(output.get("status") or "")
    key = next((key for key in SCORE_KEYS if output.get(key) is not None), None)
    if key is None or status in _FAILURES:
        keys = ", ".join(SCORE_KEYS)
        raise EvaluatorError(f"gave no score (status {status!r}): {reason or f'expected a number under one of {keys}'}")
    value = _finite(output[key], key)
    raw = output.get("raw_score")
    return Verdict(
        score=_clamped(value),
        raw_score=value if raw is None else _finite(raw, "raw_score"),
        reason=reason,
        artifacts=_artifacts(output.get("artifacts")),
    )


def _finite(value: object, what: str) -> float:
    # A bool is an int to Python, but `True` is no score of 1: it is a forgotten conversion.
    if isinstance(value, bool) or not isinstance(value, Real):
        raise EvaluatorError(f"gave {value!r:.200} as {what}, which is a {type(value).__name__} and no number")
    number = float(value)
    if not math.isfinite(number):
        raise EvaluatorError(f"gave {number} as {what}, which is not finite")
    return number


def _clamped(value: float) -> float:
    return min(SCORE_MAX, max(0.0, value))


def _artifacts(value: object) -> dict[str, JsonValue]:
    """Keep what is plain, small JSON; a score is not lost over its illustrations."""
    if not value:
        return {}
    try:
        text = json.dumps(value, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        return {"dropped": f"not plain JSON: {error}"[:500]}
    if not isinstance(value, Mapping):
        return {"dropped": "not an object"}
    if len(text) > ARTIFACT_BYTES_MAX:
        return {"dropped": f"{len(text)} bytes, at most {ARTIFACT_BYTES_MAX}"}
    plain: dict[str, JsonValue] = json.loads(text)
    return plain
