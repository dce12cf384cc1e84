"""Which complete groups are worth training on. Pure."""

from __future__ import annotations

from safactory.contracts.rollouts import RolloutSample

SAMPLES_MIN = 2
"""A mean over fewer says nothing."""


def drop_reason(samples: list[RolloutSample], *, keep_equal_rewards: bool) -> str:
    """Return why a group is not trained on; empty when it is."""
    if len(samples) < SAMPLES_MIN:
        return "too_few_samples" if samples else "cancelled"
    if not any(sample.in_loss and sample.sequences for sample in samples):
        return "no_tokens"
    if len({sample.reward for sample in samples}) == 1 and not keep_equal_rewards:
        return "equal_rewards"
    return ""
