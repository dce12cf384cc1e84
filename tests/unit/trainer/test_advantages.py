from __future__ import annotations

import math

import pytest

from safactory.trainer.advantages import AdvantageKind, advantages

CENTRED, GRPO, RLOO = AdvantageKind.GROUP_CENTRED, AdvantageKind.GRPO, AdvantageKind.RLOO


@pytest.mark.parametrize(("kind", "expected"), [(CENTRED, 0.5), (GRPO, 0.866024), (RLOO, 0.666667)])
def test_two_of_four(kind: AdvantageKind, expected: float) -> None:
    assert advantages([1, 0, 0, 1], kind) == pytest.approx([expected, -expected, -expected, expected], abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "first", "others"), [(CENTRED, 0.875, -0.125), (GRPO, 2.474867, -0.353552), (RLOO, 1.0, -0.142857)]
)
def test_one_of_eight(kind: AdvantageKind, first: float, others: float) -> None:
    assert advantages([1] + [0] * 7, kind) == pytest.approx([first] + [others] * 7, abs=1e-5)


@pytest.mark.parametrize("kind", AdvantageKind)
@pytest.mark.parametrize("reward", [0.0, 0.1, 1 / 3, 0.95, 1e-9, 12345.678])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 49])
def test_equal_rewards_of_any_value_give_exactly_zero(kind: AdvantageKind, reward: float, size: int) -> None:
    assert advantages([reward] * size, kind) == [0.0] * size


@pytest.mark.parametrize("rewards", [[0.0] + [0.95] * 7, [0.0] + [0.35] * 7, [0.35 + 1e-9] + [0.35] * 7])
def test_a_small_spread_cannot_explode(rewards: list[float]) -> None:
    assert max(map(abs, advantages(rewards, GRPO))) < 3


@pytest.mark.parametrize("kind", AdvantageKind)
def test_a_missing_reward_takes_no_part_and_gets_zero(kind: AdvantageKind) -> None:
    whole = advantages([1, 0, 0, 1], kind)
    assert advantages([1, 0, math.nan, 0, 1], kind) == [whole[0], whole[1], 0.0, whole[2], whole[3]]


@pytest.mark.parametrize("rewards", [[], [1.0], [math.nan, 1.0], [math.nan, math.inf]])
def test_a_group_with_fewer_than_two_rewards_has_no_advantage(rewards: list[float]) -> None:
    assert advantages(rewards, GRPO) == [0.0] * len(rewards)
