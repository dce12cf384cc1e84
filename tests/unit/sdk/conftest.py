"""Answers of the services, as small as a test needs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import JsonValue

from safactory.sdk.calls import Facts

MakeFacts = Callable[..., Facts]


@pytest.fixture
def a_status() -> MakeFacts:
    """Make a job status of the scheduler."""

    def make(**changes: JsonValue) -> Facts:
        status: Facts = {
            "job_id": "job-1",
            "state": "running",
            "planned": 40,
            "environments": {"frozenlake": 30, "math": 10},
            "queued": 4,
            "running": 16,
            "scoring": 3,
            "ended": {"succeeded": 12, "failed": 5},
            "attempts": 17,
            "retried": 0,
            "retry_cause": "",
            "scored": 17,
            "mean_score": 7.06,
            "groups": {"admitted": 5, "ready": 0, "dropped": 0},
            "steps_done": 0,
            "steps_wanted": 0,
        }
        return status | changes

    return make


@pytest.fixture
def some_results() -> MakeFacts:
    """Make a result table of dataelf, of one environment."""

    def make(**changes: JsonValue) -> Facts:
        row: Facts = {
            "name": "frozenlake",
            "planned": 40,
            "scored": 17,
            "endings": {"failed": 5, "succeeded": 12, "gateway_error": 1},
            "mean_reward": 7.06,
            "mean_fraction": 0.706,
            "ci95": [0.47, 0.87],
            "prompt_tokens": 1234567,
            "completion_tokens": 2345,
        }
        return {"job_id": "job-1", "environments": [row | changes], "causes": []}

    return make
