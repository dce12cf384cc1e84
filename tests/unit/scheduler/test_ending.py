"""How an attempt ends: the worker's view, the gateway's and the evaluator's in one reason."""

from __future__ import annotations

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.sessions import CallError
from safactory.scheduler.ending import ending_of, scored_reason
from safactory.testkit.builders import a_reward_scored, a_run_outcome, a_session_sealed

BROKEN = CallError(http_status=500, message="it failed", retryable=True)
REFUSED = CallError(http_status=401, message="no key", retryable=False)
NO_CALL = "the runner made no model call through its session URL"
SPENT = "the step budget (max_steps) was spent"

TABLE = [
    # outcome, calls, truncated, last error → reason, cause, retry
    ("succeeded", 2, False, None, ("succeeded", "", False)),
    ("failed", 2, False, None, ("failed", "", False)),
    ("succeeded", 0, False, None, ("empty", NO_CALL, False)),
    ("failed", 0, False, None, ("empty", NO_CALL, False)),
    ("truncated_steps", 0, False, None, ("empty", NO_CALL, False)),
    ("succeeded", 2, True, None, ("truncated_steps", SPENT, False)),
    ("failed", 2, True, None, ("truncated_steps", SPENT, False)),
    ("truncated_tokens", 2, True, None, ("truncated_tokens", "", False)),
    ("succeeded", 0, True, None, ("empty", NO_CALL, False)),
    ("succeeded", 2, False, BROKEN, ("gateway_error", "it failed", True)),
    ("failed", 2, False, BROKEN, ("gateway_error", "it failed", True)),
    ("agent_error", 2, False, BROKEN, ("gateway_error", "it failed", True)),
    ("agent_error", 1, False, REFUSED, ("gateway_error", "no key", False)),
    ("succeeded", 2, True, BROKEN, ("gateway_error", "it failed", True)),
    ("timeout", 2, False, BROKEN, ("timeout", "", False)),
    ("truncated_steps", 2, False, BROKEN, ("truncated_steps", "", False)),
    ("environment_error", 2, False, BROKEN, ("environment_error", "", True)),
    ("agent_error", 2, False, None, ("agent_error", "", False)),
    ("agent_error", 0, False, None, ("agent_error", "", False)),
    ("timeout", 0, False, None, ("timeout", "", False)),
    ("environment_error", 0, False, None, ("environment_error", "", True)),
    ("infrastructure_error", 0, False, None, ("infrastructure_error", "", True)),
    ("cancelled", 2, True, None, ("cancelled", "", False)),
]


@pytest.mark.parametrize(("reason", "calls", "truncated", "error", "expected"), TABLE)
def test_an_attempt_ends(
    reason: str, calls: int, truncated: bool, error: CallError | None, expected: tuple[str, str, bool]
) -> None:
    sealed = a_session_sealed(last_seq=calls, truncated=truncated, last_error=error)
    assert ending_of(a_run_outcome(reason=EndReason(reason)), sealed) == expected


def test_the_workers_cause_is_kept() -> None:
    outcome = a_run_outcome(reason=EndReason.AGENT_ERROR, cause="the runner exited with 3")
    assert ending_of(outcome, a_session_sealed()).cause == "the runner exited with 3"


@pytest.mark.parametrize("reason", EndReason)
def test_what_ends_without_the_gateways_word_is_retried_as_its_reason_says(reason: EndReason) -> None:
    assert ending_of(a_run_outcome(reason=reason), a_session_sealed()).retry is reason.retried


@pytest.mark.parametrize(
    ("before", "score", "passed", "after"),
    [
        ("succeeded", 10.0, True, "succeeded"),
        ("succeeded", 3.0, False, "failed"),
        ("failed", 10.0, True, "succeeded"),
        ("failed", 0.0, False, "failed"),
        ("truncated_steps", 10.0, True, "truncated_steps"),
        ("truncated_tokens", 0.0, False, "truncated_tokens"),
        ("succeeded", None, False, "evaluator_error"),
        ("truncated_steps", None, False, "evaluator_error"),
    ],
)
def test_the_evaluators_word_decides_between_right_and_wrong(
    before: str, score: float | None, passed: bool, after: str
) -> None:
    reward = a_reward_scored(score=score, passed=passed)
    assert scored_reason(EndReason(before), reward) == after
