"""A runner ended: its outcome says whether there is anything to score."""

from __future__ import annotations

from safactory.contracts.sessions import SessionFinished
from safactory.evaluator.attempts import Attempts, Hold


def handle(event: SessionFinished, record: Hold, attempts: Attempts) -> None:
    """Join it to its attempt."""
    attempts.finished(event, record)
