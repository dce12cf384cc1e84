"""The loss of one token: decoupled PPO with truncated importance weights and an entropy bonus.

Three policies meet here: roll (the engine's, recorded at sampling), old (the trainer's before the first pass) and
theta (the one being changed). The clip is about old; the weight old/roll corrects for the engine being behind.
Guarantees: a token with a non-finite log-probability in any policy has no loss and no gradient, and is counted.

Shapes: N = sampled tokens of one micro-batch, flattened.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from safactory.trainer.settings import LossSettings

LOG_RATIO_MAX = 20.0
"""Log-ratios are clamped to ± this, so that one absurd token cannot overflow a sum."""


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of the sampled tokens under the three policies."""

    theta_N: Tensor
    """Carries the gradient."""
    old_N: Tensor
    roll_N: Tensor


@dataclass(frozen=True)
class TokenLosses:
    """Losses of the tokens, and what the monitors need; no reduction has been done."""

    loss_N: Tensor
    """0 where `valid_N` is False."""
    valid_N: Tensor
    """False where a log-probability is not finite."""
    ratio_N: Tensor
    """theta / old; 1 where not valid."""
    weight_N: Tensor
    """old / roll before truncation; 1 where not valid."""
    log_weight_N: Tensor
    clipped_low_N: Tensor
    """The clip took the gradient of a token with a negative advantage."""
    clipped_high_N: Tensor
    """The clip took the gradient of a token with a positive advantage."""


def decoupled_ppo(logprobs: TokenLogprobs, advantage_N: Tensor, settings: LossSettings) -> TokenLosses:
    """Return −sg(min(w, C)) · min(ρA, clip(ρ)A) for each token, ρ = theta/old and w = old/roll."""
    theta_N, old_N, roll_N = logprobs.theta_N, logprobs.old_N.detach(), logprobs.roll_N.detach()
    valid_N = torch.isfinite(theta_N.detach()) & torch.isfinite(old_N) & torch.isfinite(roll_N)
    log_ratio_N = _difference(theta_N, old_N, valid_N)
    log_weight_N = _difference(old_N, roll_N, valid_N)
    ratio_N, weight_N = log_ratio_N.exp(), log_weight_N.exp()
    low, high = 1.0 - settings.clip_low, 1.0 + settings.clip_high
    surrogate_N = torch.minimum(ratio_N * advantage_N, ratio_N.clamp(low, high) * advantage_N)
    loss_N = -weight_N.clamp(max=settings.tis_cap) * surrogate_N
    with torch.no_grad():
        clipped_low_N = valid_N & (advantage_N < 0) & (ratio_N < low)
        clipped_high_N = valid_N & (advantage_N > 0) & (ratio_N > high)
    return TokenLosses(
        loss_N=torch.where(valid_N, loss_N, 0.0),
        valid_N=valid_N,
        ratio_N=ratio_N.detach(),
        weight_N=weight_N,
        log_weight_N=log_weight_N,
        clipped_low_N=clipped_low_N,
        clipped_high_N=clipped_high_N,
    )


def _difference(left_N: Tensor, right_N: Tensor, valid_N: Tensor) -> Tensor:
    # Both sides are replaced before the subtraction: inf − inf under a later mask would still send NaN gradients.
    left_N = torch.where(valid_N, left_N, 0.0)
    right_N = torch.where(valid_N, right_N, 0.0)
    return (left_N - right_N).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def chosen_logprobs(logits_N_V: Tensor, tokens_N: Tensor, temperature_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return (logprob_N, entropy_N) of the distribution that was sampled from: temperature before softmax."""
    logprobs_N_V = torch.log_softmax(logits_N_V / temperature_N[:, None], dim=-1)
    chosen_N = logprobs_N_V.gather(1, tokens_N[:, None]).squeeze(1)
    # A token with probability 0 contributes 0, where −inf · 0 would be NaN.
    entropy_N = -(logprobs_N_V.exp() * logprobs_N_V.clamp(min=-1e4)).sum(-1)
    return chosen_N, entropy_N


def k3(log_ratio_N: Tensor) -> Tensor:
    """Return e^{−d} − 1 + d ≥ 0, for samples of p an estimate of KL(p‖q) where d = log p − log q."""
    return torch.expm1(-log_ratio_N) + log_ratio_N


def ess_fraction(weight_N: Tensor) -> float:
    """Return the effective sample size of the weights, as a fraction of their number (1 = all equal)."""
    if weight_N.numel() == 0:
        return 1.0
    return float(weight_N.sum() ** 2 / (weight_N.numel() * (weight_N**2).sum()))
