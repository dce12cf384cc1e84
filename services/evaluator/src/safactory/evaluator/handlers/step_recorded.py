"""A model call was recorded: one part of a trajectory."""

from __future__ import annotations

from safactory.contracts.steps import StepRecorded
from safactory.evaluator.attempts import Attempts, Hold


def handle(event: StepRecorded, record: Hold, attempts: Attempts) -> None:
    """Join it to its attempt."""
    attempts.step(event, record)
