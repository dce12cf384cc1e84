"""Sampling: one token a row, and its log-probability under the distribution that it was drawn from.

Guarantees: the reported log-probabilities are those of the processed distribution — temperature first, then top_k and
top_p with what they keep renormalised. A temperature of 0 takes the likeliest token and reports temperature 1, since
the distribution it samples from is a point. A seeded request draws the same noise whatever shares its batch.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SamplingParams:
    """How one request samples."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    seed: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the distribution is softmax(logits / temperature) and nothing else."""
        return self.top_p >= 1.0 and self.top_k <= 0


@dataclass(frozen=True)
class Sampled:
    """What one step drew."""

    tokens: list[int]
    logprobs: list[float]
    logprobs_B_V: Tensor
    """The whole distribution, for those who asked for alternatives."""


def sample(
    logits_B_V: Tensor, params: Sequence[SamplingParams], generators: Sequence[torch.Generator | None]
) -> Sampled:
    """Draw one token for each row."""
    temperature_B = torch.tensor([p.temperature or 1.0 for p in params], device=logits_B_V.device)
    logprobs_B_V = torch.log_softmax(logits_B_V / temperature_B[:, None], -1)
    limited = [row for row, p in enumerate(params) if not p.is_plain]
    if limited:
        logprobs_B_V[limited] = _limit(logprobs_B_V[limited], [params[row] for row in limited])
    # Gumbel noise turns drawing into an argmax, so that rows with a generator of their own need no other path.
    noise_B_V = _noise(logprobs_B_V, generators)
    noise_B_V[[row for row, p in enumerate(params) if p.temperature == 0]] = 0.0
    tokens_B = (logprobs_B_V + noise_B_V).argmax(-1)
    chosen_B = logprobs_B_V.gather(1, tokens_B[:, None])[:, 0]
    return Sampled(tokens_B.tolist(), chosen_B.tolist(), logprobs_B_V)


def _noise(like_B_V: Tensor, generators: Sequence[torch.Generator | None]) -> Tensor:
    uniform_B_V = torch.empty_like(like_B_V).exponential_()
    for row, generator in enumerate(generators):
        if generator is not None:
            uniform_B_V[row] = torch.empty(like_B_V.shape[1]).exponential_(generator=generator).to(like_B_V)
    return -uniform_B_V.clamp_min(torch.finfo(uniform_B_V.dtype).tiny).log()


def _limit(logprobs_B_V: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Set what top_k and top_p cut to −inf, and renormalise the rest."""
    ordered_B_V, order_B_V = logprobs_B_V.sort(-1, descending=True)
    size = logprobs_B_V.shape[1]
    top_k_B = torch.tensor([p.top_k if p.top_k > 0 else size for p in params], device=logprobs_B_V.device)
    top_p_B = torch.tensor([p.top_p for p in params], device=logprobs_B_V.device)
    kept_B_V = torch.arange(size, device=logprobs_B_V.device) < top_k_B[:, None]
    probability_B_V = torch.where(kept_B_V, ordered_B_V, -torch.inf).softmax(-1)
    # A token stays while those before it have not reached top_p; so the first always stays.
    before_B_V = probability_B_V.cumsum(-1) - probability_B_V
    kept_B_V &= (before_B_V < top_p_B[:, None]) | (top_p_B[:, None] >= 1.0)
    kept_B_V[:, 0] = True
    limited_B_V = torch.where(kept_B_V, ordered_B_V, -torch.inf).log_softmax(-1)
    return torch.empty_like(limited_B_V).scatter_(1, order_B_V, limited_B_V)


def make_generator(seed: int | None) -> torch.Generator | None:
    """Return the noise source of a seeded request."""
    return None if seed is None else torch.Generator().manual_seed(seed)


def alternatives(logprobs_V: Tensor, count: int) -> list[tuple[int, float]]:
    """Return the likeliest tokens with their log-probabilities; impossible ones are left out."""
    values, ids = logprobs_V.topk(min(count, len(logprobs_V)))
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return [(token, value) for token, value in pairs if value != float("-inf")]
