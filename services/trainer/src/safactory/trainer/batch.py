"""`Batch`: the groups of one optimiser step as padded tensors.

Takes the samples of whole groups, gives every sampled token its group's advantage, and cuts the sequences into
micro-batches of bounded size. Guarantees: logprob and mask at t belong to token t; the denominator counts every
sampled token of the step before any of them is rejected, so micro-batching cannot change the loss. The last token of
a sequence predicts nothing and is not put in; sequences that differ in it alone share one row.

Shapes: B rows, T tokens (right-padded), N sampled tokens, K positions whose logits are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from safactory.contracts.rollouts import RolloutSample, TokenSequence
from safactory.trainer.advantages import AdvantageKind, advantages


@dataclass(frozen=True)
class TrainSequence:
    """One sequence and the advantage of the sample that it belongs to."""

    sequence: TokenSequence
    advantage: float


@dataclass(frozen=True)
class MicroBatch:
    """The tensors of one forward pass."""

    tokens_B_T: Tensor
    attention_B_T: Tensor
    """1 for tokens, 0 for padding."""
    row_N: Tensor
    """Row whose prediction each sampled token is."""
    column_N: Tensor
    """Index into `positions_K` of the position that predicts it."""
    positions_K: Tensor
    """Positions whose next token was sampled in any of the sequences."""
    chosen_N: Tensor
    """The sampled tokens."""
    logprob_roll_N: Tensor
    advantage_N: Tensor
    temperature_N: Tensor

    def to(self, device: torch.device) -> MicroBatch:
        """Return the same micro-batch on another device."""
        return MicroBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


@dataclass(frozen=True)
class Batch:
    """One optimiser step's worth of data."""

    micro_batches: tuple[MicroBatch, ...]
    sampled_tokens: int
    """The loss's denominator."""
    tokens: int
    samples: int
    groups: int
    equal_groups: int
    """Groups whose rewards do not differ: they carry no gradient."""
    missing_rewards: int
    """Samples whose reward is not a number: out of the baseline, advantage 0."""
    reward_mean: float


def make_batch(groups: Sequence[Sequence[RolloutSample]], kind: AdvantageKind, micro_batch_tokens: int) -> Batch:
    """Put whole groups into one batch; a sample that is not `in_loss` counts in its group's baseline only."""
    sequences: list[TrainSequence] = []
    equal_groups = 0
    for group in groups:
        advantage_of = advantages([_reward(sample) for sample in group], kind)
        equal_groups += not any(advantage_of)
        for sample, advantage in zip(group, advantage_of, strict=True):
            if sample.in_loss and math.isfinite(_reward(sample)):
                sequences += (TrainSequence(sequence, advantage) for sequence in sample.sequences)
    trainable = [item for item in sequences if any(item.sequence.loss_mask[1:])]
    rewards = [_reward(sample) for group in groups for sample in group]
    finite = [reward for reward in rewards if math.isfinite(reward)]
    return Batch(
        micro_batches=tuple(_micro_batch(rows) for rows in _cut(trainable, micro_batch_tokens)),
        sampled_tokens=sum(sum(item.sequence.loss_mask[1:]) for item in trainable),
        tokens=sum(len(item.sequence.token_ids) for item in trainable),
        samples=len(rewards),
        groups=len(groups),
        equal_groups=equal_groups,
        missing_rewards=len(rewards) - len(finite),
        reward_mean=math.fsum(finite) / len(finite) if finite else 0.0,
    )


def _reward(sample: RolloutSample) -> float:
    """Return the reward, or NaN when how the sample ended says that it has none."""
    return sample.reward if sample.reason.in_baseline else math.nan


def _cut(sequences: Sequence[TrainSequence], tokens_max: int) -> Iterator[list[TrainSequence]]:
    # Sorted, so that little of a padded rectangle is padding, and equal inputs meet in one micro-batch.
    items: list[TrainSequence] = []
    rows = 0
    for item in sorted(sequences, key=_input_key):
        new_row = not items or _input_key(items[-1]) != _input_key(item)
        if new_row and rows and (rows + 1) * len(item.sequence.token_ids) > tokens_max:
            yield items
            items, rows = [], 0
        items.append(item)
        rows += new_row
    if items:
        yield items


def _input_key(item: TrainSequence) -> tuple[int, list[int]]:
    return len(item.sequence.token_ids), item.sequence.token_ids[:-1]


def _micro_batch(items: list[TrainSequence]) -> MicroBatch:
    row_of: dict[tuple[int, ...], int] = {}
    places: list[tuple[int, int]] = []
    chosen: list[int] = []
    values: list[tuple[float, float, float]] = []
    for item in items:
        sequence = item.sequence
        row = row_of.setdefault(tuple(sequence.token_ids[:-1]), len(row_of))
        # The first token has no prediction; token t is predicted at t - 1.
        for t in range(1, len(sequence.token_ids)):
            if sequence.loss_mask[t]:
                places.append((row, t - 1))
                chosen.append(sequence.token_ids[t])
                values.append((sequence.logprobs[t], item.advantage, sequence.temperature))
    tokens_B_T, attention_B_T = _padded(list(row_of))
    row_N, position_N = torch.tensor(places).unbind(1)
    positions_K, column_N = torch.unique(position_N, return_inverse=True)
    logprob_roll_N, advantage_N, temperature_N = torch.tensor(values).unbind(1)
    return MicroBatch(
        tokens_B_T=tokens_B_T,
        attention_B_T=attention_B_T,
        row_N=row_N,
        column_N=column_N,
        positions_K=positions_K,
        chosen_N=torch.tensor(chosen),
        logprob_roll_N=logprob_roll_N,
        advantage_N=advantage_N,
        temperature_N=temperature_N,
    )


def _padded(rows: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    width = max(len(row) for row in rows)
    tokens_B_T = torch.tensor([row + (0,) * (width - len(row)) for row in rows])
    lengths_B = torch.tensor([len(row) for row in rows])
    return tokens_B_T, (torch.arange(width) < lengths_B[:, None]).long()
