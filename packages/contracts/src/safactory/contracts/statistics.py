"""Intervals, the same wherever a number is shown. Pure."""

from __future__ import annotations

import math

Z_95 = 1.959964
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
        2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom."""


def mean_ci95(count: int, mean: float, variance: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean of values in [0, 1]; None for fewer than two values.

    Wilson's interval where all values are 0 or 1, in which case the sample variance is count·p·(1−p)/(count−1);
    Student's t otherwise. Both stay within [0, 1].
    """
    if count < 2:
        return None
    bernoulli = mean * (1 - mean) * count / (count - 1)
    if math.isclose(variance, bernoulli, rel_tol=1e-9, abs_tol=1e-12):
        return wilson_ci95(count, mean)
    t = T_95[count - 2] if count - 2 < len(T_95) else Z_95
    half = t * math.sqrt(variance / count)
    return max(0.0, mean - half), min(1.0, mean + half)


def wilson_ci95(count: int, fraction: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a fraction of `count` trials."""
    z2 = Z_95 * Z_95
    centre = (fraction + z2 / (2 * count)) / (1 + z2 / count)
    half = Z_95 / (1 + z2 / count) * math.sqrt(fraction * (1 - fraction) / count + z2 / (4 * count * count))
    # Of none or all the interval ends exactly at 0 or 1; rounding would leave a trace there.
    low = centre - half if fraction > 0 else 0.0
    high = centre + half if fraction < 1 else 1.0
    return max(0.0, low), min(1.0, high)
