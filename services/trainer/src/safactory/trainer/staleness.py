"""Staleness: how many weight versions lie between a group's oldest token and the weights that would train on it."""

from __future__ import annotations

from safactory.contracts.ids import WeightVersion


def staleness(oldest: WeightVersion, current: WeightVersion) -> int:
    """Return the distance in optimiser steps; negative when the token is newer than the trainer.

    An older epoch's steps beyond a restart led to weights that no longer exist: they are as far away as the way back
    to where the epochs part and forth again, never a negative number that would pass every bound.
    """
    steps = current.step - oldest.step
    if oldest.epoch == current.epoch:
        return steps
    return -abs(steps) - 1 if current.epoch < oldest.epoch else abs(steps) + current.epoch - oldest.epoch


def is_trainable(oldest: WeightVersion, current: WeightVersion, bound: int) -> bool:
    """Whether a group may be trained on; one that claims to come from the future may not."""
    return 0 <= staleness(oldest, current) <= bound
