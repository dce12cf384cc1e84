"""`reward.scored`: end the session."""

from __future__ import annotations

from safactory.contracts.rewards import RewardScored
from safactory.scheduler.finisher import Finisher


async def reward_scored(event: RewardScored, finisher: Finisher) -> None:
    """Give the score to the session that waits for it; a repeated or late one changes nothing."""
    await finisher.score(event)
