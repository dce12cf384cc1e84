"""Joining: which attempts are given out, and which records stay uncommitted."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event
from safactory.contracts.sessions import CallError
from safactory.evaluator.attempts import Attempts
from safactory.evaluator.inbox import make_inbox

Records = Any


async def deliver(attempts: Attempts, records: Records, *events: Event) -> None:
    """Hand events over as the consumer does."""
    inbox = make_inbox(attempts, lambda: None)
    for event in events:
        delivery = records.delivery(event)
        await inbox(delivery)
        records.handled(delivery)


async def test_an_attempt_is_ready_in_whatever_order_its_records_come(records: Records) -> None:
    events = [records.queued(), records.finished(), records.sealed(2), records.step(1), records.step(2)]
    for order in itertools.permutations(events):
        attempts = Attempts()
        for event in order[:-1]:
            await deliver(attempts, records, event)
            assert attempts.take_ready() == []
        await deliver(attempts, records, order[-1])
        [attempt] = attempts.take_ready()
        assert (attempt.number, sorted(attempt.steps), attempt.missing) == (1, [1, 2], [])
        assert attempts.take_ready() == []


async def test_records_stay_uncommitted_until_the_session_ends(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.queued(), records.step(1), records.finished(), records.sealed(1))
    [attempt] = attempts.take_ready()
    assert attempts.is_open(attempt)
    assert records.committed() == {"session": 0, "step": 0}
    await deliver(attempts, records, records.ended())
    assert records.committed() == {"session": 4, "step": 1}
    assert not attempts.is_open(attempt)
    await deliver(attempts, records, records.step(1))
    assert records.committed() == {"session": 4, "step": 2}


@pytest.mark.parametrize("reason", [reason for reason in EndReason if not reason.scored])
async def test_an_ending_that_is_not_scored_lets_everything_go(records: Records, reason: EndReason) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.queued(), records.step(1), records.finished(reason=reason))
    await deliver(attempts, records, records.sealed(1))
    assert attempts.take_ready() == attempts.take_overdue(0) == []
    assert records.committed() == {"session": 3, "step": 1}


async def test_an_attempt_without_a_model_call_is_not_scored(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.queued(), records.finished(), records.sealed(0))
    assert attempts.take_ready() == attempts.take_overdue(0) == []
    assert records.committed() == {"session": 3}


@pytest.mark.parametrize("reversed_order", [False, True])
async def test_a_run_that_stopped_over_a_failed_model_call_is_not_scored(
    records: Records, reversed_order: bool
) -> None:
    attempts = Attempts()
    failed = CallError(http_status=502, message="the model is away")
    over = [records.finished(reason=EndReason.FAILED), records.sealed(1, last_error=failed)]
    await deliver(attempts, records, records.queued(), records.step(1))
    await deliver(attempts, records, *(reversed(over) if reversed_order else over))
    assert attempts.take_ready() == attempts.take_overdue(0) == []
    assert records.committed() == {"session": 3, "step": 1}


async def test_a_truncated_attempt_is_scored(records: Records) -> None:
    attempts = Attempts()
    finished = records.finished(reason=EndReason.TRUNCATED_STEPS)
    await deliver(attempts, records, records.queued(), records.step(1), finished, records.sealed(1, truncated=True))
    assert len(attempts.take_ready()) == 1


async def test_a_newer_attempt_takes_the_place_of_the_older(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.queued(), records.step(1), records.queued(attempt=2))
    assert records.committed() == {"session": 1, "step": 1}
    late = [records.finished(), records.sealed(1), records.step(2)]
    await deliver(attempts, records, *late)
    assert attempts.take_ready() == []
    await deliver(
        attempts, records, records.step(1, attempt=2), records.finished(attempt=2), records.sealed(1, attempt=2)
    )
    [attempt] = attempts.take_ready()
    assert attempt.number == 2


async def test_a_retry_after_an_ending_that_is_not_scored_is_joined_afresh(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.queued(), records.finished(reason=EndReason.GATEWAY_ERROR))
    await deliver(attempts, records, records.queued(attempt=2), records.finished(attempt=2))
    await deliver(attempts, records, records.sealed(1, attempt=2), records.step(1, attempt=2))
    [attempt] = attempts.take_ready()
    assert attempt.number == 2


async def test_what_stays_incomplete_is_overdue_once_and_named(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.step(2), records.finished(), records.sealed(3))
    assert attempts.take_ready() == attempts.take_overdue(60) == []
    [attempt] = attempts.take_overdue(0)
    assert attempt.missing == ["session.queued", "step 1", "step 3"]
    assert attempts.take_overdue(0) == []


async def test_a_running_attempt_is_never_overdue(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.queued(), records.step(1), records.finished())
    assert attempts.take_overdue(0) == []


async def test_a_record_that_comes_twice_changes_nothing(records: Records) -> None:
    attempts = Attempts()
    events = [records.queued(), records.step(1), records.finished(), records.sealed(1)]
    await deliver(attempts, records, *events, *events)
    assert len(attempts.take_ready()) == 1
    await deliver(attempts, records, *events)
    assert attempts.take_ready() == []
    await deliver(attempts, records, records.ended())
    assert records.committed() == {"session": 10, "step": 3}


async def test_a_call_without_a_session_is_let_go(records: Records) -> None:
    attempts = Attempts()
    await deliver(attempts, records, records.step(1, session_id=""))
    assert records.committed() == {"step": 1}
