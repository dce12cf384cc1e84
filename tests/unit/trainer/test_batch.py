from __future__ import annotations

import math

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.rollouts import TokenSequence
from safactory.trainer.advantages import AdvantageKind
from safactory.trainer.batch import make_batch
from tests.unit.trainer.conftest import a_sample, a_sequence

CENTRED = AdvantageKind.GROUP_CENTRED


def test_logprob_mask_and_advantage_at_t_belong_to_token_t() -> None:
    group = [
        a_sample(1.0, a_sequence([7, 8], [4, 5], [-0.25, -0.5], temperature=0.7)),
        a_sample(0.0, a_sequence([9], [6], [-2.0])),
    ]
    batch = make_batch([group], CENTRED, 1000)
    (micro,) = batch.micro_batches
    assert micro.tokens_B_T.tolist() == [[9, 0, 0], [7, 8, 4]]
    assert micro.attention_B_T.tolist() == [[1, 0, 0], [1, 1, 1]]
    predicted_from = micro.positions_K[micro.column_N].tolist()
    rows = zip(micro.row_N.tolist(), predicted_from, micro.chosen_N.tolist(), strict=True)
    assert list(rows) == [(0, 0, 6), (1, 1, 4), (1, 2, 5)]
    assert micro.logprob_roll_N.tolist() == pytest.approx([-2.0, -0.25, -0.5])
    assert micro.advantage_N.tolist() == pytest.approx([-0.5, 0.5, 0.5])
    assert micro.temperature_N.tolist() == pytest.approx([1.0, 0.7, 0.7])
    assert (batch.sampled_tokens, batch.tokens, batch.samples, batch.groups) == (3, 6, 2, 1)


def test_tool_tokens_are_never_chosen_even_if_their_logprob_is_minus_infinity() -> None:
    sequence = TokenSequence(
        token_ids=[1, 2, 3, 4, 5],
        loss_mask=[0, 1, 0, 0, 1],
        logprobs=[-math.inf, -1.0, -math.inf, math.nan, -2.0],
    )
    batch = make_batch([[a_sample(1.0, sequence), a_sample(0.0, a_sequence([1], [2]))]], CENTRED, 1000)
    chosen = [token for micro in batch.micro_batches for token in micro.chosen_N.tolist()]
    assert sorted(chosen) == [2, 2, 5]


def test_sequences_that_differ_in_their_last_token_alone_share_a_row() -> None:
    group = [a_sample(float(at), a_sequence([1, 2, 3], [at])) for at in range(4)]
    (micro,) = make_batch([group, group], CENTRED, 1000).micro_batches
    assert micro.tokens_B_T.tolist() == [[1, 2, 3]]
    assert sorted(micro.chosen_N.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_truncated_sample_counts_in_the_baseline_and_not_in_the_loss() -> None:
    group = [
        a_sample(1.0, a_sequence([1], [2]), reason=EndReason.SUCCEEDED),
        a_sample(0.0, a_sequence([1], [3]), reason=EndReason.FAILED),
        a_sample(0.5, a_sequence([1], [4]), reason=EndReason.TRUNCATED_STEPS),
        a_sample(0.9, a_sequence([1], [5]), reason=EndReason.TRUNCATED_TOKENS),
    ]
    (micro,) = make_batch([group], CENTRED, 1000).micro_batches
    assert micro.chosen_N.tolist() == [2, 3]
    assert micro.advantage_N.tolist() == pytest.approx([0.4, -0.6])


def test_a_failure_is_not_a_reward_of_zero() -> None:
    group = [
        a_sample(1.0, a_sequence([1], [2])),
        a_sample(0.0, a_sequence([1], [3]), reason=EndReason.FAILED),
        a_sample(0.0, a_sequence([1], [4]), reason=EndReason.INFRASTRUCTURE_ERROR),
        a_sample(math.nan, a_sequence([1], [5])),
    ]
    batch = make_batch([group], CENTRED, 1000)
    (micro,) = batch.micro_batches
    assert micro.chosen_N.tolist() == [2, 3]
    assert micro.advantage_N.tolist() == pytest.approx([0.5, -0.5])
    assert (batch.missing_rewards, batch.reward_mean) == (2, 0.5)


def test_groups_of_one_and_groups_of_equals_carry_no_advantage_and_are_counted() -> None:
    one = [a_sample(1.0, a_sequence([1], [2]))]
    equal = [a_sample(0.3, a_sequence([1], [3])), a_sample(0.3, a_sequence([1], [4]))]
    batch = make_batch([one, equal], CENTRED, 1000)
    assert all(not micro.advantage_N.any() for micro in batch.micro_batches)
    assert (batch.groups, batch.equal_groups) == (2, 2)


def test_a_batch_without_sampled_tokens_has_no_micro_batch() -> None:
    nothing = TokenSequence(token_ids=[1, 2], loss_mask=[0, 0], logprobs=[0.0, 0.0])
    batch = make_batch([[a_sample(1.0, nothing), a_sample(0.0)]], CENTRED, 1000)
    assert (batch.micro_batches, batch.sampled_tokens) == ((), 0)


def test_micro_batches_stay_within_their_tokens_and_lose_nothing() -> None:
    group = [a_sample(float(at), a_sequence([1] * (at % 5 + 1), [at % 9, 2])) for at in range(20)]
    batch = make_batch([group], CENTRED, 12)
    sizes = [micro.tokens_B_T.numel() for micro in batch.micro_batches]
    assert len(sizes) > 1
    assert max(sizes) <= 12
    assert sum(len(micro.chosen_N) for micro in batch.micro_batches) == batch.sampled_tokens == 40
