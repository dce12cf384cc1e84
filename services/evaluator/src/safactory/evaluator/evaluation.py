"""What a rule evaluator is called with: `evaluate(request, spec, trajectory)`.

The names are those of AI45Lab/Safactory, so that its evaluators run unchanged. Unlike the runner's, this request holds
the whole dataset row, ground truth included: it never leaves the evaluator.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from safactory.contracts.runner import SimulationStartRequest, SimulationStartResult
from safactory.contracts.trajectory import Trajectory, TrajectoryStep


class Readable:
    """Gives a dataclass's fields by subscript too, as evaluators written for dictionaries expect."""

    def __getitem__(self, name: str) -> object:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def get(self, name: str, default: object = None) -> object:
        """Return a field, or the default when there is none of this name."""
        return getattr(self, name, default)


class EvaluationRequest(SimulationStartRequest):
    """The start request again, with the whole row under `env_params["dataset"]` and the runner's result."""

    start_result: SimulationStartResult


@dataclass(frozen=True)
class EvaluationSpec(Readable):
    """The environment's rules of scoring."""

    env_name: str
    pass_score: float
    """Score (0–10) from which a session counts as passed."""
    timeout_s: float
    evaluator_path: str


@dataclass(frozen=True)
class EvaluatedStep(Readable):
    """One model call."""

    seq: int
    """Counts from 1."""
    status: str
    """`ok`, or how the call failed."""
    messages: list[dict[str, JsonValue]]
    """The whole prompt, as it was sent."""
    response: str
    """The answer's text; empty when there was none."""
    message: dict[str, JsonValue]
    """The whole answer, tool calls included."""
    finish_reason: str
    parameters: dict[str, JsonValue]

    @property
    def text(self) -> str:
        """The answer's text."""
        return self.response


@dataclass(frozen=True)
class EvaluatedTrajectory(Readable):
    """All model calls of the attempt, in order, as the gateway recorded them."""

    session_id: str
    attempt: int
    steps: list[EvaluatedStep]
    final_response: str
    """The text of the last answer that came whole."""


def evaluated(trajectory: Trajectory) -> EvaluatedTrajectory:
    """Return a trajectory as evaluators read it."""
    return EvaluatedTrajectory(
        session_id=trajectory.session_id,
        attempt=trajectory.attempt,
        steps=[_evaluated_step(step) for step in trajectory.steps],
        final_response=trajectory.final_response,
    )


def _evaluated_step(step: TrajectoryStep) -> EvaluatedStep:
    return EvaluatedStep(
        seq=step.seq,
        status=step.status.value,
        messages=[message.body for message in step.messages],
        response=step.text,
        message=step.response.body if step.response else {},
        finish_reason=step.finish_reason,
        parameters=step.parameters,
    )
