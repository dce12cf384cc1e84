"""How an attempt ends: what the worker saw, what the gateway saw, and what the evaluator said. Pure."""

from __future__ import annotations

from typing import NamedTuple

from safactory.contracts.endings import EndReason
from safactory.contracts.rewards import RewardScored
from safactory.contracts.runner import RunOutcome
from safactory.contracts.sessions import SessionSealed

_BLAMED_ON_THE_MODEL = frozenset({EndReason.SUCCEEDED, EndReason.FAILED, EndReason.AGENT_ERROR})
"""Endings by which a runner may have reported that its last model call failed."""


class Ending(NamedTuple):
    """An attempt's end before it is scored."""

    reason: EndReason
    cause: str
    retry: bool


def ending_of(outcome: RunOutcome, sealed: SessionSealed) -> Ending:
    """Combine the worker's view with the gateway's.

    A run that stopped because its last model call failed is the gateway's failure, not a wrong answer; a run without
    any call is empty; and a run that was told to stop is truncated, whatever it claims.
    """
    reason = outcome.reason
    error = sealed.last_error
    if error is not None and reason in _BLAMED_ON_THE_MODEL:
        return Ending(EndReason.GATEWAY_ERROR, error.message, error.retryable)
    if reason.scored and sealed.last_seq == 0:
        return Ending(EndReason.EMPTY, outcome.cause or "the runner made no model call through its session URL", False)
    if sealed.truncated and reason in (EndReason.SUCCEEDED, EndReason.FAILED):
        return Ending(EndReason.TRUNCATED_STEPS, "the step budget (max_steps) was spent", False)
    return Ending(reason, outcome.cause, reason.retried)


def scored_reason(before: EndReason, reward: RewardScored) -> EndReason:
    """Return the final reason of an attempt that was given to its evaluator."""
    if reward.score is None:
        return EndReason.EVALUATOR_ERROR
    if before in (EndReason.SUCCEEDED, EndReason.FAILED):
        return EndReason.SUCCEEDED if reward.passed else EndReason.FAILED
    return before
