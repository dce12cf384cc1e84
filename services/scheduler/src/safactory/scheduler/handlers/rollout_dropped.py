"""`rollout.dropped`: a group that is not trained on, so that another may be admitted."""

from __future__ import annotations

from safactory.contracts.rollouts import RolloutDropped
from safactory.scheduler.admitter import Admitter


async def rollout_dropped(event: RolloutDropped, admitter: Admitter) -> None:
    """Take note, and admit what now may be."""
    await admitter.pace_changed(event)
