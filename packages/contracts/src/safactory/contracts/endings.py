"""How a session ends: one `EndReason`, never a pair of booleans.

An infrastructure failure is never a reward of 0: only reasons with `scored` reach an evaluator.
"""

from __future__ import annotations

from enum import StrEnum


class EndReason(StrEnum):
    """Why a session is over; each member says whether it is retried, scored and trained on."""

    SUCCEEDED = "succeeded"
    """The agent did its turn and its score reached the environment's pass mark."""
    FAILED = "failed"
    """The agent did its turn and was wrong."""
    TRUNCATED_STEPS = "truncated_steps"
    """The step budget was spent before the agent was done."""
    TRUNCATED_TOKENS = "truncated_tokens"
    """The model's context or token budget was spent before the agent was done."""
    TIMEOUT = "timeout"
    """The runner was still going at its deadline and was killed."""
    EMPTY = "empty"
    """The runner ended well but made no model call: there is nothing to score or train on."""
    AGENT_ERROR = "agent_error"
    """The runner crashed, exited non-zero, or gave no valid result."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment itself failed, by the runner's own word."""
    EVALUATOR_ERROR = "evaluator_error"
    """The run ended well, but no score could be made of it."""
    GATEWAY_ERROR = "gateway_error"
    """The model could not be reached or refused the call."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """A part of the factory failed: a worker died, a lease expired, a process could not start."""
    CANCELLED = "cancelled"
    """The job was cancelled, its training was done, or its group's deadline passed before this session started."""

    @property
    def scored(self) -> bool:
        """Whether a session that ended so is given to its evaluator."""
        return self in _SCORED

    @property
    def retried(self) -> bool:
        """Whether a new attempt can help, unless the cause says otherwise."""
        return self in _RETRIED

    @property
    def in_baseline(self) -> bool:
        """Whether its reward counts in its group's mean."""
        return self in _SCORED

    @property
    def in_loss(self) -> bool:
        """Whether its tokens are trained on: a truncated answer was not the agent's last word."""
        return self in (EndReason.SUCCEEDED, EndReason.FAILED)


_SCORED = frozenset(
    {EndReason.SUCCEEDED, EndReason.FAILED, EndReason.TRUNCATED_STEPS, EndReason.TRUNCATED_TOKENS},
)
_RETRIED = frozenset(
    {EndReason.ENVIRONMENT_ERROR, EndReason.GATEWAY_ERROR, EndReason.INFRASTRUCTURE_ERROR},
)
