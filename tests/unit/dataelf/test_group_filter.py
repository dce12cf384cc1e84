"""Which groups are worth training on."""

from __future__ import annotations

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.rollouts import RolloutSample, TokenSequence
from safactory.dataelf.group_filter import drop_reason

SEQUENCE = TokenSequence(token_ids=[1, 2], loss_mask=[0, 1], logprobs=[0.0, -0.1])


def sample(reward: float, *, in_loss: bool = True, sequences: int = 1) -> RolloutSample:
    return RolloutSample(
        session_id="s",
        attempt=1,
        reason=EndReason.SUCCEEDED,
        reward=reward,
        in_loss=in_loss,
        sequences=[SEQUENCE] * sequences,
    )


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([sample(0.0), sample(1.0)], ""),
        ([sample(0.0), sample(0.0), sample(0.5)], ""),
        ([sample(0.0), sample(1.0, in_loss=False)], ""),
        ([], "cancelled"),
        ([sample(1.0)], "too_few_samples"),
        ([sample(1.0), sample(1.0)], "equal_rewards"),
        ([sample(0.0)] * 8, "equal_rewards"),
        ([sample(0.0, in_loss=False), sample(1.0, in_loss=False)], "no_tokens"),
        ([sample(0.0, sequences=0), sample(1.0, sequences=0)], "no_tokens"),
        ([sample(1.0, sequences=0), sample(1.0, sequences=0)], "no_tokens"),
    ],
)
def test_a_group_is_kept_or_dropped_with_the_reason(samples: list[RolloutSample], reason: str) -> None:
    assert drop_reason(samples, keep_equal_rewards=False) == reason


def test_groups_of_equal_rewards_can_be_kept_but_not_those_of_too_few() -> None:
    assert drop_reason([sample(1.0), sample(1.0)], keep_equal_rewards=True) == ""
    assert drop_reason([sample(1.0)], keep_equal_rewards=True) == "too_few_samples"
