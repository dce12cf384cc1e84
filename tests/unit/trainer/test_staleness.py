from __future__ import annotations

import pytest

from safactory.contracts.ids import WeightVersion
from safactory.trainer.staleness import is_trainable, staleness


def version(text: str) -> WeightVersion:
    return WeightVersion.parse(text)


@pytest.mark.parametrize(
    ("oldest", "current", "steps"),
    [
        ("0.3", "0.3", 0),
        ("0.3", "0.7", 4),
        ("0.7", "0.3", -4),
        ("0.10", "1.8", 3),
        ("0.5", "1.8", 4),
        ("1.8", "0.8", -1),
    ],
)
def test_staleness_counts_steps_and_no_epoch_makes_old_data_young(oldest: str, current: str, steps: int) -> None:
    assert staleness(version(oldest), version(current)) == steps


def test_the_bound_is_inclusive_and_the_future_is_refused() -> None:
    fit = [is_trainable(version(f"0.{step}"), version("0.6"), 2) for step in range(9)]
    assert fit == [False, False, False, False, True, True, True, False, False]
