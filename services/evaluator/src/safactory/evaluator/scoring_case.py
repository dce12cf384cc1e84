"""`ScoringCase`: all that is needed to score one attempt; `ScoringAnswer`: what came of it.

Both cross the pipe between the evaluator and its scoring processes as JSON.
"""

from __future__ import annotations

from pydantic import ConfigDict, JsonValue

from safactory.contracts.event import Model
from safactory.contracts.runner import SimulationStartResult
from safactory.contracts.trajectory import Trajectory
from safactory.evaluator.verdict import Verdict


class ScoringCase(Model):
    """One attempt to be scored."""

    # A NaN in a row reaches the evaluator as what it is, and not as null.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    evaluator_path: str
    """Absolute; empty when the environment has no evaluator."""
    job_id: str
    group_id: str
    environment: str
    route: str
    pass_score: float
    timeout_s: float
    row: dict[str, JsonValue]
    """The dataset row with its ground truth."""
    start_result: SimulationStartResult
    trajectory: Trajectory


class ScoringAnswer(Model):
    """Exactly one of the two is set."""

    verdict: Verdict | None = None
    error: str = ""
