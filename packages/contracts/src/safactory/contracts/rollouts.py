"""Rollouts: complete groups of sessions in token form, which is all that a trainer needs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event, Model
from safactory.contracts.ids import VersionSpan
from safactory.contracts.payload import Payload


class TokenSequence(Model):
    """One sequence as the engine saw it: prompt, sampled tokens and what the environment put between them.

    All lists have the length of `token_ids`. Turns whose prompt continues the sequence are joined to it; a turn that
    does not continue starts a sequence of its own, so no token is ever tokenised again.
    """

    token_ids: list[int]
    loss_mask: list[int]
    """1 for sampled tokens, 0 for all others."""
    logprobs: list[float]
    """Of each sampled token under the sampling distribution; 0.0 where loss_mask is 0."""
    temperature: float = 1.0
    weight_versions: list[VersionSpan] = Field(default_factory=list)
    """Spans over positions of this sequence."""


class RolloutSample(Model):
    """One session of a group."""

    session_id: str
    attempt: int
    reason: EndReason
    reward: float
    """0–1."""
    in_loss: bool
    """False: counts in the group's mean only."""
    sequences: list[TokenSequence]


class RolloutReady(Event):
    """A group is complete and worth training on."""

    type: ClassVar[str] = "rollout.ready"
    identified_by: ClassVar[tuple[str, ...]] = ("group_id",)

    group_id: str
    job_id: str
    environment: str
    group_size: int
    """Planned samples; fewer in `samples` means that the group was shrunk."""
    sample_count: int
    oldest_version: str
    """The oldest weight version of any sampled token, from which staleness is counted."""
    reward_mean: float
    samples: Payload
    """JSON list of `RolloutSample`."""


class RolloutDropped(Event):
    """A group ended without being worth training on; the scheduler may admit another in its place."""

    type: ClassVar[str] = "rollout.dropped"
    identified_by: ClassVar[tuple[str, ...]] = ("group_id",)

    group_id: str
    job_id: str
    environment: str
    reason: str
    """`equal_rewards`, `too_few_samples`, `no_tokens`, `cancelled`; by the trainer `stale`, `unreadable`."""
    sample_count: int
    reward_mean: float | None = None
