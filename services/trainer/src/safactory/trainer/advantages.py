"""Advantages: how much better a sample did than its group.

One number a sample, from the rewards of its whole group. Guarantees: a group whose rewards are equal, or that has
fewer than two finite rewards, yields exactly 0 for every sample; a missing reward takes no part in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

STD_FLOOR = 1e-3
"""Below this a group's spread is noise: dividing by it would turn rounding errors into gradients."""


class AdvantageKind(StrEnum):
    """Which baseline and scale a group's rewards get."""

    GROUP_CENTRED = "group_centred"
    """Dr.GRPO: r − mean. A group counts by how much its rewards differ."""
    GRPO = "grpo"
    """(r − mean) / sample standard deviation (n − 1)."""
    RLOO = "rloo"
    """r − mean of the others."""


def advantages(rewards: Sequence[float], kind: AdvantageKind) -> list[float]:
    """Return one advantage for each reward of a group; NaN marks a missing reward, and its sample gets 0."""
    finite = [reward for reward in rewards if math.isfinite(reward)]
    if len(finite) < 2:
        return [0.0] * len(rewards)
    # Shifting by one of them first makes the mean of equal rewards exact, whatever their value.
    shift = finite[0]
    mean = shift + math.fsum(reward - shift for reward in finite) / len(finite)
    scale = _SCALE_OF[kind](finite, mean)
    return [(reward - mean) * scale if math.isfinite(reward) else 0.0 for reward in rewards]


def _one(rewards: list[float], mean: float) -> float:
    return 1.0


def _inverse_std(rewards: list[float], mean: float) -> float:
    # Two passes on purpose: E[x²] − E[x]² loses all digits when the spread is small.
    variance = math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
    return 1.0 / max(math.sqrt(variance), STD_FLOOR)


def _leave_one_out(rewards: list[float], mean: float) -> float:
    return len(rewards) / (len(rewards) - 1)


_SCALE_OF: dict[AdvantageKind, Callable[[list[float], float], float]] = {
    AdvantageKind.GROUP_CENTRED: _one,
    AdvantageKind.GRPO: _inverse_std,
    AdvantageKind.RLOO: _leave_one_out,
}
