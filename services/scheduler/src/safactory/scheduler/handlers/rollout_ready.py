"""`rollout.ready`: a group worth training on."""

from __future__ import annotations

from safactory.contracts.rollouts import RolloutReady
from safactory.scheduler.admitter import Admitter


async def rollout_ready(event: RolloutReady, admitter: Admitter) -> None:
    """Take note, and admit what now may be."""
    await admitter.pace_changed(event)
