from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from safactory.contracts.endings import EndReason
from safactory.sdk.results_table import (
    results_json,
    results_table,
    scored,
    with_every_session,
    without_archive,
)

MakeFacts = Any


def shown(results: dict[str, Any], width: int = 80) -> str:
    output = io.StringIO()
    Console(file=output, width=width).print(results_table(results))
    return output.getvalue()


def test_the_table_fits_80_columns_and_cuts_nothing(some_results: MakeFacts) -> None:
    text = shown(some_results(endings={"infrastructure_error": 1234, "succeeded": 1}))
    assert "…" not in text
    for part in ("frozenlake", "infrastructure_error 1234", "17 of 40", "7.06", "0.706", "(0.47–0.87)", "1234567"):
        assert part in text


def test_what_was_not_scored_has_no_number(some_results: MakeFacts) -> None:
    results = some_results(scored=0, mean_reward=None, mean_fraction=None, ci95=None, endings={})
    assert "–" in shown(results) and "none yet" in shown(results)
    assert scored(results) == 0


def test_sessions_without_an_ending_are_counted_under_the_one_that_is_given(some_results: MakeFacts) -> None:
    results: Any = with_every_session(some_results(), EndReason.CANCELLED)
    endings = results["environments"][0]["endings"]
    assert endings == {"succeeded": 12, "failed": 5, "gateway_error": 1, "cancelled": 22}


def test_json_has_the_promised_fields_and_no_other(some_results: MakeFacts) -> None:
    numbers: Any = results_json(some_results(), 1.23456)
    assert list(numbers) == ["job_id", "wall_s", "environments"]
    assert numbers["wall_s"] == 1.235
    fields = "name planned scored endings mean_reward mean_fraction ci95 prompt_tokens completion_tokens"
    assert list(numbers["environments"][0]) == fields.split()


def test_without_an_archive_every_planned_session_still_has_an_ending(a_status: MakeFacts) -> None:
    numbers: Any = results_json(with_every_session(without_archive(a_status()), EndReason.INFRASTRUCTURE_ERROR), 1.0)
    endings = {row["name"]: row["endings"] for row in numbers["environments"]}
    assert endings == {"frozenlake": {"infrastructure_error": 30}, "math": {"infrastructure_error": 10}}
