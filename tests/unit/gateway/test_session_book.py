"""What the gateway knows of a session, live and rebuilt; and who is let in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from safactory.contracts.sessions import CallError
from safactory.contracts.steps import StepRecorded, StepStatus
from safactory.gateway.admission import Admission
from safactory.gateway.errors import Refusal
from safactory.gateway.session_book import SessionBook, SessionState
from safactory.gateway.settings import GatewaySettings
from safactory.infra.session_tokens import SessionClaims, sign
from safactory.testkit.builders import SESSION, a_session_sealed, a_step_recorded

KEY = "k" * 32


def claims(**changes: Any) -> SessionClaims:
    fields = {"session_id": SESSION, "attempt": 1, "job_id": "j", "group_id": "g", "environment": "e", "route": "r"}
    return SessionClaims.model_validate(fields | changes)


def an_admission(**limits: int) -> Admission:
    admission = Admission(GatewaySettings(**limits), KEY)  # type: ignore[arg-type]
    admission.starting = False
    return admission


@pytest.fixture
def book() -> SessionBook:
    return SessionBook(ttl_s=100.0)


def failed(seq: int, status: StepStatus = StepStatus.UPSTREAM_ERROR, http_status: int = 500) -> StepRecorded:
    return a_step_recorded(seq=seq, status=status, http_status=http_status, error="why", completion_tokens=0)


def facts(state: SessionState) -> tuple[object, ...]:
    sums = (state.prompt_tokens, state.completion_tokens, state.error_count)
    return (state.attempt, state.seq, state.charged, *sums, state.last_error, state.closed)


def test_a_book_that_was_rebuilt_is_the_book_that_was(book: SessionBook) -> None:
    steps = [a_step_recorded(seq=1), failed(2), a_step_recorded(seq=3), a_step_recorded(seq=1, attempt=2)]
    again = SessionBook(ttl_s=100.0)
    for step in steps:
        state = book.open(claims(attempt=step.attempt))
        state.seq = step.seq
        book.account(state, step)
    for step in [*steps, *steps]:
        again.replay_step(step)
    found, rebuilt = book.find(SESSION), again.find(SESSION)
    assert found and rebuilt and facts(found) == facts(rebuilt)


def test_steps_that_are_read_twice_count_once(book: SessionBook) -> None:
    for _ in range(3):
        book.replay_step(a_step_recorded(seq=1))
    state = book.find(SESSION)
    assert state and (state.seq, state.charged, state.prompt_tokens, state.completion_tokens) == (1, 1, 3, 1)


@pytest.mark.parametrize(
    ("status", "http_status", "charged", "error"),
    [
        (StepStatus.OK, 200, 1, None),
        (StepStatus.CLIENT_ABORT, 499, 1, None),
        (StepStatus.UPSTREAM_TRUNCATED, 502, 1, CallError(http_status=502, message="why", retryable=True)),
        (StepStatus.UPSTREAM_ERROR, 500, 0, CallError(http_status=500, message="why", retryable=True)),
        (StepStatus.UPSTREAM_ERROR, 429, 0, CallError(http_status=429, message="why", retryable=True)),
        (StepStatus.UPSTREAM_ERROR, 401, 0, CallError(http_status=401, message="why", retryable=False)),
        (StepStatus.UPSTREAM_ERROR, 404, 0, CallError(http_status=404, message="why", retryable=False)),
        (StepStatus.UPSTREAM_ERROR, 502, 0, CallError(http_status=502, message="why", retryable=True)),
        (StepStatus.TIMEOUT, 504, 0, CallError(http_status=0, message="why", retryable=True)),
    ],
)
def test_a_call_that_the_model_server_failed_is_remembered_and_costs_budget_only_when_it_broke_off(
    book: SessionBook, status: StepStatus, http_status: int, charged: int, error: CallError | None
) -> None:
    book.replay_step(failed(1, status, http_status))
    state = book.find(SESSION)
    assert state and (state.charged, state.last_error) == (charged, error)


def test_a_call_that_went_well_clears_the_last_error(book: SessionBook) -> None:
    book.replay_step(failed(1))
    book.replay_step(a_step_recorded(seq=2))
    state = book.find(SESSION)
    assert state and state.last_error is None
    assert state.error_count == 1


@pytest.mark.parametrize(
    ("max_steps", "charged", "spent"),
    [(-1, 1000, False), (0, 0, True), (2, 1, False), (2, 2, True), (2, 3, True)],
)
def test_a_budget_is_spent_at_its_number_of_calls(max_steps: int, charged: int, spent: bool) -> None:
    assert SessionState(1, max_steps=max_steps, charged=charged).budget_spent is spent


async def test_calls_in_flight_count_against_the_budget() -> None:
    state = SessionState(1, max_steps=2, charged=1)
    assert not state.budget_spent
    task = asyncio.create_task(asyncio.sleep(0))
    state.inflight.add(task)
    assert state.budget_spent
    await task


def test_a_newer_attempt_begins_afresh_and_the_older_one_is_closed(book: SessionBook) -> None:
    book.replay_step(a_step_recorded(seq=3))
    newer = book.open(claims(attempt=2))
    assert (newer.seq, newer.charged, newer.closed) == (0, 0, False)
    older = book.open(claims(attempt=1))
    assert older.closed
    assert older.close_reason == "attempt 2 has begun"
    book.replay_step(a_step_recorded(seq=4))
    assert book.find(SESSION) is newer
    assert newer.seq == 0


def test_a_seal_on_the_bus_keeps_a_session_closed_after_a_restart(book: SessionBook) -> None:
    sealed = a_session_sealed()
    book.replay_seal(sealed)
    state = book.open(claims())
    assert (state.closed, state.sealed) == (True, sealed)


def test_sealed_sessions_are_forgotten_after_their_time_and_open_ones_are_not() -> None:
    book = SessionBook(ttl_s=-1.0)
    book.replay_seal(a_session_sealed(session_id="sealed"))
    book.replay_step(a_step_recorded(session_id="open"))
    book.forget_old()
    assert (book.find("sealed"), len(book)) == (None, 1)


@pytest.mark.parametrize("how", ["bearer", "api key"])
def test_a_token_is_taken_from_either_header(how: str) -> None:
    token = sign(claims(), KEY)
    given = (f"Bearer {token}", "") if how == "bearer" else ("", token)
    assert an_admission().claims(SESSION, *given).session_id == SESSION


@pytest.mark.parametrize(
    ("authorization", "says"),
    [
        ("", "give the start request's session_token"),
        ("Bearer ", "give the start request's session_token"),
        ("Bearer invented", "not valid"),
        (f"Bearer {sign(claims(), 'x' * 32)}", "not valid"),
        (f"Bearer {sign(claims(exp=1), KEY)}", "expired"),
        (f"Bearer {sign(claims(session_id='other'), KEY)}", "another session"),
    ],
)
def test_who_has_no_token_of_this_session_is_401(authorization: str, says: str) -> None:
    with pytest.raises(Refusal, match=says) as caught:
        an_admission().claims(SESSION, authorization, "")
    assert (caught.value.http_status, caught.value.kind) == (401, "invalid_session_token")


def test_the_factorys_own_key_is_no_session_token() -> None:
    admission = an_admission()
    assert admission.is_service(f"Bearer {KEY}")
    assert not admission.is_service(f"Bearer {sign(claims(), KEY)}")
    with pytest.raises(Refusal):
        admission.claims(SESSION, f"Bearer {KEY}", "")


async def test_the_limits_of_a_session_and_of_the_gateway_refuse_and_charge_nothing() -> None:
    admission = an_admission(max_inflight_requests=3, per_session_max_inflight=2)
    states = [SessionState(1), SessionState(1)]
    tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
    for state, task in zip([states[0], states[0], states[1]], tasks, strict=True):
        admission.enter(state)
        state.inflight.add(task)
    admission.leave()
    with pytest.raises(Refusal, match="2 calls in flight already") as caught:
        admission.enter(states[0])
    assert (caught.value.http_status, caught.value.response().headers["Retry-After"]) == (429, "1")
    admission.enter(states[1])
    with pytest.raises(Refusal, match="inflight limit") as full:
        admission.enter(states[1])
    assert (full.value.http_status, full.value.response().headers["Retry-After"]) == (503, "1")
    assert [(state.seq, state.charged) for state in states] == [(0, 0), (0, 0)]
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("changes", "state", "http_status", "says"),
    [
        ({"starting": True}, SessionState(1), 503, "starting"),
        ({"draining": True}, SessionState(1), 503, "draining"),
        ({}, SessionState(1, closed=True, close_reason="done"), 409, "closed: done"),
        ({}, SessionState(1, closed=True), 409, "closed: sealed"),
    ],
)
def test_a_gateway_that_is_not_ready_and_a_session_that_is_over_admit_nobody(
    changes: dict[str, bool], state: SessionState, http_status: int, says: str
) -> None:
    admission = an_admission()
    for name, value in changes.items():
        setattr(admission, name, value)
    with pytest.raises(Refusal, match=says) as caught:
        admission.enter(state)
    assert caught.value.http_status == http_status
