"""A runner's result, found in whatever it printed."""

from __future__ import annotations

import pytest

from safactory.contracts.errors import RunnerError
from safactory.contracts.runner import SimulationStartRequest, parse_result

RESULT = '{"session_id": "s", "status": "truncated", "total_reward": 0.5}'


@pytest.mark.parametrize(
    "stdout",
    [
        RESULT,
        f"SAFACTORY_RESULT_JSON {RESULT}",
        f"loading…\n{RESULT}\n",
        f"{RESULT}\r\n",
        f'{{"loss": 1}}\n[1]\n{{not json\n{RESULT}\nbye',
        f"{RESULT}\nSAFACTORY_RESULT_JSON {RESULT}\n",
        RESULT.replace(", ", ",\n  "),
    ],
)
def test_the_one_result_is_found(stdout: str) -> None:
    result = parse_result(stdout, "s")
    assert (result.status, result.total_reward) == ("truncated", 0.5)


def test_a_line_separator_inside_a_text_does_not_cut_the_result() -> None:
    stdout = 'x\n{"session_id": "s", "error_text": "a\u2028b\u0085c"}\n'
    assert parse_result(stdout, "s").error_text == "a\u2028b\u0085c"


@pytest.mark.parametrize(
    ("stdout", "says"),
    [
        ("", "no result"),
        ("hello", "no result"),
        ('{"status": "succeeded"}', "no result"),
        (f"{RESULT}\n{RESULT.replace('0.5', '0.6')}", "two different results"),
        (RESULT.replace("0.5", "NaN"), "total_reward"),
        (RESULT.replace("0.5", "-Infinity"), "total_reward"),
        (RESULT.replace("0.5", '"much"'), "total_reward"),
        (RESULT.replace("truncated", "won"), "status"),
        (RESULT.replace('"s"', '"t"'), "instead of its own"),
        (RESULT[:-1], "no result"),
    ],
)
def test_what_is_no_result_is_refused_with_the_reason(stdout: str, says: str) -> None:
    with pytest.raises(RunnerError, match=says):
        parse_result(stdout, "s")


def test_a_request_of_a_newer_caller_is_read_with_what_it_adds() -> None:
    request = SimulationStartRequest.model_validate({
        "job_id": "j", "session_id": "s", "agent_name": "a", "gateway_base_url": "http://g/v1/sessions", "model": "m",
        "env_params": {"dataset": {"q": 1}}, "of_tomorrow": True,
    })  # fmt: skip
    assert request.dataset == {"q": 1}
    assert request.model_dump()["of_tomorrow"] is True


def test_a_request_without_a_row_has_an_empty_dataset() -> None:
    request = SimulationStartRequest(job_id="j", session_id="s", agent_name="a", gateway_base_url="", model="m")
    assert request.dataset == {}
