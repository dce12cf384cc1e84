from __future__ import annotations

import math

import pytest
import torch

from safactory.inference.sampling import SamplingParams, alternatives, make_generator, sample


def logprobs(logits: list[float], params: SamplingParams) -> list[float]:
    drawn = sample(torch.tensor([logits]), [params], [None])
    return [float(value) for value in drawn.logprobs_B_V[0]]


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1.0, [-0.407606, -1.407606, -2.407606]), (0.6, [-0.202573, -1.869240, -3.535906])],
)
def test_logprobs_are_of_the_distribution_at_the_request_s_temperature(
    temperature: float, expected: list[float]
) -> None:
    assert logprobs([2.0, 1.0, 0.0], SamplingParams(temperature=temperature)) == pytest.approx(expected, abs=1e-5)


def test_what_top_p_keeps_is_renormalised() -> None:
    logits = [math.log(p) for p in (0.15, 0.5, 0.05, 0.3)]
    kept = [math.exp(value) for value in logprobs(logits, SamplingParams(top_p=0.8))]
    assert kept == pytest.approx([0.0, 0.625, 0.0, 0.375], abs=1e-5)


def test_top_k_keeps_k_tokens_and_top_p_counts_among_them() -> None:
    logits = [math.log(p) for p in (0.15, 0.5, 0.05, 0.3)]
    assert [math.exp(v) for v in logprobs(logits, SamplingParams(top_k=2))] == pytest.approx(
        [0, 0.625, 0, 0.375], abs=1e-5
    )
    assert [math.exp(v) for v in logprobs(logits, SamplingParams(top_k=2, top_p=0.6))] == pytest.approx([0, 1, 0, 0])
    assert [math.exp(v) for v in logprobs(logits, SamplingParams(top_p=1e-9))] == pytest.approx([0, 1, 0, 0])


def test_limits_of_one_row_leave_other_rows_alone() -> None:
    logits = torch.tensor([[math.log(p) for p in (0.1, 0.6, 0.3)]] * 2)
    drawn = sample(logits, [SamplingParams(top_k=1), SamplingParams()], [None, None])
    assert drawn.logprobs_B_V.exp()[0].tolist() == pytest.approx([0, 1, 0])
    assert drawn.logprobs_B_V.exp()[1].tolist() == pytest.approx([0.1, 0.6, 0.3])


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    torch.manual_seed(0)
    probabilities = torch.tensor([0.1, 0.6, 0.3])
    drawn = sample(probabilities.log().repeat(20000, 1), [SamplingParams()] * 20000, [None] * 20000)
    share = torch.bincount(torch.tensor(drawn.tokens), minlength=3) / 20000
    assert share.tolist() == pytest.approx([0.1, 0.6, 0.3], abs=0.015)
    assert drawn.logprobs[0] == pytest.approx(float(probabilities[drawn.tokens[0]].log()), abs=1e-5)


def test_temperature_zero_takes_the_likeliest_and_reports_its_logprob_at_temperature_one() -> None:
    for _ in range(20):
        drawn = sample(torch.tensor([[2.0, 1.0, 0.0]]), [SamplingParams(temperature=0.0)], [None])
        assert drawn.tokens == [0]
        assert drawn.logprobs == pytest.approx([-0.407606], abs=1e-5)


def test_a_seed_fixes_the_draws_whatever_shares_the_batch() -> None:
    logits = torch.zeros(1, 50)
    params = SamplingParams(seed=5)
    generator = make_generator(5)
    alone = [sample(logits, [params], [generator]).tokens[0] for _ in range(5)]
    generator = make_generator(5)
    among = []
    for _ in range(5):
        drawn = sample(logits.repeat(3, 1), [SamplingParams(), params, SamplingParams()], [None, generator, None])
        among.append(drawn.tokens[1])
    assert alone == among
    assert len(set(alone)) > 1


def test_alternatives_are_the_likeliest_and_never_impossible() -> None:
    values = torch.tensor([-math.inf, -0.2, -2.0, -math.inf])
    assert [token for token, _ in alternatives(values, 3)] == [1, 2]
