"""A session is over for good: whatever is still held of it can be let go."""

from __future__ import annotations

from safactory.contracts.sessions import SessionEnded
from safactory.evaluator.attempts import Attempts, Hold


def handle(event: SessionEnded, _record: Hold, attempts: Attempts) -> None:
    """Close the session."""
    attempts.ended(event)
