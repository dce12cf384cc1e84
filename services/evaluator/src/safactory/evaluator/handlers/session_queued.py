"""A new attempt of a session waits: its dataset row and its evaluator are known from here on."""

from __future__ import annotations

from safactory.contracts.sessions import SessionQueued
from safactory.evaluator.attempts import Attempts, Hold


def handle(event: SessionQueued, record: Hold, attempts: Attempts) -> None:
    """Join it to its attempt."""
    attempts.queued(event, record)
