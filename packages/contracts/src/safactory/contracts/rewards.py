"""Rewards: scores as facts of their own, so that scoring again adds and never rewrites."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, JsonValue

from safactory.contracts.event import Event

SCORE_MAX = 10.0
"""Scores run from 0 to this on the wire; `fraction` is the same on 0 to 1."""


class RewardScored(Event):
    """An evaluator gave its verdict on one attempt, or could not."""

    type: ClassVar[str] = "reward.scored"
    identified_by: ClassVar[tuple[str, ...]] = ("session_id", "attempt", "scorer", "scorer_version")

    session_id: str
    attempt: int
    job_id: str
    group_id: str
    environment: str
    scorer: str
    """Which evaluator, e.g. `rule`."""
    scorer_version: str
    """Digest of its source."""
    score: float | None
    """0–10, clamped; None when there is no score, and then `error` says why."""
    raw_score: float | None = None
    """Before the clamp."""
    passed: bool = False
    """Whether the score reached the environment's pass mark."""
    reason: str = ""
    error: str = ""
    artifacts: dict[str, JsonValue] = Field(default_factory=dict)
    wall_s: float = 0.0
    """Scoring alone, without the wait for a free evaluator."""

    @property
    def fraction(self) -> float | None:
        """The score on 0–1."""
        return None if self.score is None else self.score / SCORE_MAX
