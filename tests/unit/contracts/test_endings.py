"""What each ending means for retries, scoring and training."""

from __future__ import annotations

import pytest

from safactory.contracts.endings import EndReason

MEANING = {  # retried, scored, in_baseline, in_loss
    "succeeded": (False, True, True, True),
    "failed": (False, True, True, True),
    "truncated_steps": (False, True, True, False),
    "truncated_tokens": (False, True, True, False),
    "timeout": (False, False, False, False),
    "empty": (False, False, False, False),
    "agent_error": (False, False, False, False),
    "environment_error": (True, False, False, False),
    "evaluator_error": (False, False, False, False),
    "gateway_error": (True, False, False, False),
    "infrastructure_error": (True, False, False, False),
    "cancelled": (False, False, False, False),
}


@pytest.mark.parametrize("reason", EndReason)
def test_an_ending_means(reason: EndReason) -> None:
    assert (reason.retried, reason.scored, reason.in_baseline, reason.in_loss) == MEANING[reason]


@pytest.mark.parametrize("reason", EndReason)
def test_what_is_retried_is_never_a_reward_and_what_is_trained_on_counts_in_the_mean(reason: EndReason) -> None:
    assert not (reason.retried and reason.scored)
    assert reason.in_baseline or not reason.in_loss


def test_the_table_is_whole() -> None:
    assert set(MEANING) == set(EndReason)
