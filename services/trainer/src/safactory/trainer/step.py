"""One optimiser step over one batch.

`old` is taken from one forward pass over the whole batch before the first update; then come `passes` updates, each
over every micro-batch with one denominator. Metrics are returned, not logged. Guarantees: weights never change on a
gradient that is not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from safactory.contracts.errors import SafactoryError
from safactory.trainer.batch import Batch, MicroBatch
from safactory.trainer.losses import TokenLogprobs, TokenLosses, chosen_logprobs, decoupled_ppo, ess_fraction, k3
from safactory.trainer.settings import LossSettings, OptimiserSettings


class DivergedError(SafactoryError):
    """The gradient is not finite: the weights are as before, and a person must look."""


@dataclass
class _Tally:
    """What the monitors add up over the micro-batches of one pass."""

    loss: float = 0.0
    entropy: float = 0.0
    rejected: int = 0
    clipped_low: int = 0
    clipped_high: int = 0
    ratios: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    log_weights: list[Tensor] = field(default_factory=list)

    def add(self, losses: TokenLosses, entropy_N: Tensor) -> None:
        valid_N = losses.valid_N
        self.loss += float(losses.loss_N.detach().sum())
        self.entropy += float(entropy_N.detach().sum())
        self.rejected += int((~valid_N).sum())
        self.clipped_low += int(losses.clipped_low_N.sum())
        self.clipped_high += int(losses.clipped_high_N.sum())
        self.ratios.append(losses.ratio_N[valid_N])
        self.weights.append(losses.weight_N[valid_N])
        self.log_weights.append(losses.log_weight_N[valid_N])


def make_optimiser(model: nn.Module, settings: OptimiserSettings) -> torch.optim.AdamW:
    """Return AdamW over the model's parameters; vectors (norms, biases) are not decayed."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(settings.beta1, settings.beta2))


def set_lr(adamw: torch.optim.AdamW, lr: float) -> None:
    """Use this learning rate from the next update on."""
    for group in adamw.param_groups:
        group["lr"] = lr


def optimise(
    model: nn.Module, adamw: torch.optim.AdamW, batch: Batch, optimiser: OptimiserSettings, loss: LossSettings
) -> dict[str, float]:
    """Change the model by one batch and return the step's metrics.

    Raises:
        DivergedError: the gradient is not finite; this update was not made.
    """
    # Dropout would make old and theta differ before the first update.
    model.eval()
    if batch.sampled_tokens == 0:
        return _counts(batch)
    with torch.no_grad():
        old = [logprobs_of(model, micro)[0] for micro in batch.micro_batches]
    tallies, norms = [], []
    for _ in range(optimiser.passes):
        adamw.zero_grad(set_to_none=True)
        tallies.append(accumulate(model, batch, old, loss))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), optimiser.grad_clip)
        if not torch.isfinite(norm):
            raise DivergedError(f"gradient norm is {float(norm)} over {batch.sampled_tokens} sampled tokens")
        adamw.step()
        norms.append(float(norm))
    return _counts(batch) | _metrics(tallies, norms, batch.sampled_tokens)


def accumulate(model: nn.Module, batch: Batch, old: Sequence[Tensor], loss: LossSettings) -> _Tally:
    """Add the gradient of the whole batch's loss to the parameters."""
    tally = _Tally()
    for micro, old_N in zip(batch.micro_batches, old, strict=True):
        theta_N, entropy_N = logprobs_of(model, micro)
        roll_N = micro.logprob_roll_N.to(theta_N)
        losses = decoupled_ppo(TokenLogprobs(theta_N, old_N, roll_N), micro.advantage_N.to(theta_N), loss)
        entropy_N = torch.where(losses.valid_N, entropy_N, 0.0)
        total = (losses.loss_N.sum() - loss.entropy_coef * entropy_N.sum()) / batch.sampled_tokens
        total.backward()  # type: ignore[no-untyped-call]
        tally.add(losses, entropy_N)
    return tally


def logprobs_of(model: nn.Module, micro: MicroBatch) -> tuple[Tensor, Tensor]:
    """Return (logprob_N, entropy_N) of the sampled tokens; logits are made only where one was sampled."""
    device = next(model.parameters()).device
    micro = micro.to(device)
    output = model(
        input_ids=micro.tokens_B_T,
        attention_mask=micro.attention_B_T,
        logits_to_keep=micro.positions_K,
        use_cache=False,
    )
    logits_N_V = output.logits[micro.row_N, micro.column_N]
    if logits_N_V.dtype in (torch.bfloat16, torch.float16):
        logits_N_V = logits_N_V.float()
    return chosen_logprobs(logits_N_V, micro.chosen_N, micro.temperature_N.to(logits_N_V))


def _counts(batch: Batch) -> dict[str, float]:
    return {
        "tokens": batch.tokens,
        "sampled_tokens": batch.sampled_tokens,
        "samples": batch.samples,
        "groups": batch.groups,
        "equal_reward_fraction": batch.equal_groups / max(batch.groups, 1),
        "missing_rewards": batch.missing_rewards,
        "reward_mean": batch.reward_mean,
    }


def _metrics(tallies: list[_Tally], norms: list[float], tokens: int) -> dict[str, float]:
    first, last = tallies[0], tallies[-1]
    ratio_N, weight_N = torch.cat(last.ratios), torch.cat(first.weights)
    return {
        "loss": first.loss / tokens,
        "entropy": first.entropy / tokens,
        "clip_fraction_low": last.clipped_low / tokens,
        "clip_fraction_high": last.clipped_high / tokens,
        "ratio_mean": float(ratio_N.mean()) if ratio_N.numel() else 1.0,
        # The tokens are samples of roll: KL(roll‖old) has d = log roll − log old.
        "mismatch_k3": float(k3(-torch.cat(first.log_weights)).mean()) if weight_N.numel() else 0.0,
        "ess_fraction": ess_fraction(weight_N),
        "grad_norm": max(norms),
        "rejected_tokens": first.rejected,
    }
