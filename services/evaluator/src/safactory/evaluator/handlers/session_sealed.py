"""The gateway closed an attempt: the number of its steps is known from here on."""

from __future__ import annotations

from safactory.contracts.sessions import SessionSealed
from safactory.evaluator.attempts import Attempts, Hold


def handle(event: SessionSealed, record: Hold, attempts: Attempts) -> None:
    """Join it to its attempt."""
    attempts.sealed(event, record)
