"""What a runner is told, and what it is not."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from safactory.contracts.runner import SimulationStartRequest
from safactory.infra.session_tokens import SessionClaims, verify
from safactory.scheduler.agent_config import HIDDEN_FIELDS
from safactory.scheduler.job_book import Job, Session
from safactory.scheduler.settings import SchedulerSettings
from safactory.scheduler.start_request import start_request
from safactory.testkit import builders as b

KEY = "k" * 32


def request_for(
    row: dict[str, JsonValue], hidden: tuple[str, ...] = HIDDEN_FIELDS, gateway: str = "http://g:1/"
) -> SimulationStartRequest:
    environment = b.an_environment_spec(params={"size": 3}, hidden_fields=hidden)
    job = Job(b.a_job_spec(environments=(environment,), route="tuned", max_steps=6, temperature=0.7))
    job.rows[b.ENVIRONMENT] = [{}, row]
    queued = b.a_session_queued(row=1, sample=2, attempt=3)
    lease = b.a_session_leased(attempt=3)
    return start_request(job, Session(queued), lease, SchedulerSettings(gateway_url=gateway), KEY)


@pytest.mark.parametrize("field", HIDDEN_FIELDS)
def test_the_ground_truth_is_nowhere_in_the_request(field: str) -> None:
    request = request_for({"question": "visible", field: "the secret"})
    assert request.dataset == {"question": "visible"}
    assert "the secret" not in request.model_dump_json()


def test_an_environment_says_itself_what_is_hidden() -> None:
    request = request_for({"answer": "shown", "winning_move": "hidden"}, hidden=("winning_move",))
    assert request.dataset == {"answer": "shown"}


def test_the_request_names_the_session_and_its_url() -> None:
    request = request_for({"q": 1})
    assert request.gateway_base_url == "http://g:1/v1/sessions"
    assert request.session_url == f"http://g:1/v1/sessions/{b.SESSION}"
    assert (request.session_id, request.agent_id, request.job_id, request.group_id) == (
        b.SESSION, b.SESSION, b.JOB, b.GROUP,
    )  # fmt: skip
    assert (request.agent_name, request.model, request.max_steps, request.temperature) == (
        b.ENVIRONMENT, "tuned", 6, 0.7,
    )  # fmt: skip
    assert request.env_params == {"size": 3, "dataset": {"q": 1}}
    assert request.agent_start_timeout_s == 60.0
    assert request.metadata == {
        "worker_id": "worker-0", "row_id": 1, "attempt": 3, "sample": 2, "runtime": "process",
    }  # fmt: skip


def test_the_token_is_for_this_attempt_its_route_and_its_budget_alone() -> None:
    request = request_for({"q": 1})
    claims = verify(request.session_token, KEY)
    assert claims == SessionClaims(
        session_id=b.SESSION, attempt=3, job_id=b.JOB, group_id=b.GROUP, environment=b.ENVIRONMENT, route="tuned",
        max_steps=6, exp=claims.exp,
    )  # fmt: skip
