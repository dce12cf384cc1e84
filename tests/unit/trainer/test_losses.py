from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from safactory.trainer.losses import TokenLogprobs, TokenLosses, chosen_logprobs, decoupled_ppo, ess_fraction, k3
from safactory.trainer.settings import LossSettings

THETA, OLD, ROLL = [0.6, 0.3, 0.5, 0.05], [0.4, 0.4, 0.5, 0.1], [0.1, 0.4, 0.5, 0.2]
NO_CAP = 1e9


def log(probabilities: list[float]) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def losses(advantage: float, roll: list[float], **settings: float) -> TokenLosses:
    logprobs = TokenLogprobs(log(THETA), log(OLD), log(roll))
    return decoupled_ppo(logprobs, torch.full((4,), advantage, dtype=torch.float64), LossSettings(**settings))


def gradient(theta: list[float], old: list[float], roll: list[float], advantage: list[float]) -> list[float]:
    theta_N = log(theta).requires_grad_()
    found = decoupled_ppo(
        TokenLogprobs(theta_N, log(old), log(roll)), torch.tensor(advantage, dtype=torch.float64), LossSettings()
    )
    found.loss_N.sum().backward()  # type: ignore[no-untyped-call]
    assert theta_N.grad is not None
    return [float(value) for value in theta_N.grad]


def test_ratios_and_weights() -> None:
    found = losses(1.0, ROLL)
    assert found.ratio_N.tolist() == pytest.approx([1.5, 0.75, 1, 0.5])
    assert found.weight_N.tolist() == pytest.approx([4, 1, 1, 0.5])


@pytest.mark.parametrize(
    ("advantage", "clip_high", "expected"),
    [
        (1.0, 0.2, [-1.2, -0.75, -1, -0.5]),
        (1.0, 0.28, [-1.28, -0.75, -1, -0.5]),
        (-1.0, 0.2, [1.5, 0.8, 1, 0.8]),
    ],
)
def test_ppo_where_the_engine_is_not_behind(advantage: float, clip_high: float, expected: list[float]) -> None:
    assert losses(advantage, OLD, clip_high=clip_high).loss_N.tolist() == pytest.approx(expected, abs=1e-5)


def test_decoupled_ppo_with_truncated_weights() -> None:
    assert losses(1.0, ROLL).loss_N.tolist() == pytest.approx([-2.56, -0.75, -1, -0.25], abs=1e-5)


def test_clips_are_counted_by_the_sign_of_the_advantage() -> None:
    up, down = losses(1.0, ROLL), losses(-1.0, ROLL)
    assert up.clipped_high_N.tolist() == [True, False, False, False]
    assert down.clipped_low_N.tolist() == [False, True, False, True]
    assert not up.clipped_low_N.any() and not down.clipped_high_N.any()


def test_gradients_at_the_reference_points() -> None:
    assert gradient([0.4], [0.4], [0.4], [2.0]) == pytest.approx([-2.0])
    assert gradient([0.6], [0.4], [0.4], [1.0]) == pytest.approx([0.0])


def test_on_policy_the_gradient_is_minus_the_advantage() -> None:
    advantage = [1.0, -0.5, 0.25, 3.0]
    assert gradient(OLD, OLD, OLD, advantage) == pytest.approx([-a for a in advantage])


def test_no_gradient_flows_through_the_weight() -> None:
    assert gradient(OLD, OLD, ROLL, [1.0] * 4) == pytest.approx([-2.0, -1.0, -1.0, -0.5])


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["theta", "old", "roll"])
def test_a_logprob_that_is_not_finite_has_no_loss_and_no_gradient(which: str, broken: float) -> None:
    tensors = {name: log(OLD) for name in ("theta", "old", "roll")}
    tensors[which][1] = broken
    theta_N = tensors["theta"].requires_grad_()
    found = decoupled_ppo(
        TokenLogprobs(theta_N, tensors["old"], tensors["roll"]),
        torch.ones(4, dtype=torch.float64),
        LossSettings(tis_cap=NO_CAP),
    )
    found.loss_N.sum().backward()  # type: ignore[no-untyped-call]
    assert theta_N.grad is not None
    assert found.valid_N.tolist() == [True, False, True, True]
    assert found.loss_N.tolist() == pytest.approx([-1, 0, -1, -1])
    assert theta_N.grad.tolist() == pytest.approx([-1, 0, -1, -1])


def test_an_absurd_ratio_stays_finite() -> None:
    logprobs = TokenLogprobs(torch.tensor([0.0]), torch.tensor([-500.0]), torch.tensor([0.0]))
    assert torch.isfinite(decoupled_ppo(logprobs, torch.tensor([-1.0]), LossSettings()).loss_N).all()


def test_k3() -> None:
    found = k3(torch.tensor([0.0, 0.5, -0.5, 2.0], dtype=torch.float64))
    assert found.tolist() == pytest.approx([0, 0.106531, 0.148721, 1.135335], abs=1e-5)


def test_k3_under_its_own_distribution_is_the_divergence() -> None:
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    assert float((p * k3(p.log() - q.log())).sum()) == pytest.approx(0.218012, abs=1e-5)


def test_effective_sample_size() -> None:
    assert ess_fraction(torch.tensor([1.0, 1.0, 1.0, 4.0])) == pytest.approx(0.644737, abs=1e-5)
    assert ess_fraction(torch.ones(5)) == pytest.approx(1.0)


def test_entropy() -> None:
    _, entropy_N = chosen_logprobs(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0]), torch.ones(1))
    assert float(entropy_N) == pytest.approx(0.832396, abs=1e-5)
    _, entropy_N = chosen_logprobs(log([0.5, 0.3, 0.2])[None], torch.tensor([0]), torch.ones(1))
    assert float(entropy_N) == pytest.approx(1.029653, abs=1e-5)


def test_entropy_of_a_distribution_with_impossible_tokens_is_finite_with_its_gradient() -> None:
    logits = torch.tensor([[1.0, -math.inf, 2.0]], requires_grad=True)
    _, entropy_N = chosen_logprobs(logits, torch.tensor([0]), torch.ones(1))
    assert torch.isfinite(entropy_N).all()


def test_temperature_comes_before_softmax_and_is_each_token_s_own() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]] * 6, dtype=torch.float64)
    tokens = torch.tensor([0, 1, 2] * 2)
    temperature_N = torch.tensor([1.0] * 3 + [0.6] * 3, dtype=torch.float64)
    chosen_N, _ = chosen_logprobs(logits, tokens, temperature_N)
    expected = [-0.407606, -1.407606, -2.407606, -0.202573, -1.869240, -3.535906]
    assert chosen_N.tolist() == pytest.approx(expected, abs=1e-5)
    ratio = (chosen_N[:3] - chosen_N[3:]).exp()
    assert ratio.tolist() == pytest.approx([0.814621, 1.586664, 3.0904], abs=1e-4)
