"""Intervals against values from tables."""

from __future__ import annotations

import statistics

import pytest

from safactory.contracts.statistics import mean_ci95, wilson_ci95


@pytest.mark.parametrize(
    ("count", "hits", "low", "high"),
    [  # R: binom.wilson / prop.test(correct = FALSE)
        (10, 0, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (10, 5, 0.2366, 0.7634),
        (100, 70, 0.6042, 0.7811),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_wilsons_interval(count: int, hits: int, low: float, high: float) -> None:
    assert wilson_ci95(count, hits / count) == pytest.approx((low, high), abs=5e-5)


def test_students_interval_of_four_values() -> None:
    # mean 0.5, s = 0.2582, t(3) = 3.182: 0.5 ± 0.4108
    values = [0.2, 0.4, 0.6, 0.8]
    found = mean_ci95(4, statistics.mean(values), statistics.variance(values))
    assert found == pytest.approx((0.0892, 0.9108), abs=1e-4)


def test_values_of_zero_and_one_alone_have_wilsons_interval() -> None:
    values = [0.0] * 3 + [1.0] * 7
    assert mean_ci95(10, 0.7, statistics.variance(values)) == wilson_ci95(10, 0.7)


def test_many_values_have_the_normal_interval() -> None:
    assert mean_ci95(400, 0.5, 0.04) == pytest.approx((0.4804, 0.5196), abs=1e-4)


def test_an_interval_stays_within_what_is_possible() -> None:
    assert mean_ci95(2, 0.5, 0.125) == (0.0, 1.0)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_values_have_no_interval(count: int) -> None:
    assert mean_ci95(count, 0.5, 0.0) is None


def test_equal_values_that_are_neither_zero_nor_one_have_no_width() -> None:
    assert mean_ci95(5, 0.25, 0.0) == (0.25, 0.25)
