"""`weights.published`: an optimiser step that is done, so that more groups may be admitted."""

from __future__ import annotations

from safactory.contracts.weights import WeightsPublished
from safactory.scheduler.admitter import Admitter


async def weights_published(event: WeightsPublished, admitter: Admitter) -> None:
    """Take note, and admit what now may be."""
    await admitter.pace_changed(event)
