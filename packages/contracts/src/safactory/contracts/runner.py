"""The runner contract: what a worker gives to an agent's process, and what it must give back.

Field names and their meaning are those of AI45Lab/Safactory, so existing runners work unchanged. A runner reads one
`SimulationStartRequest` from stdin (or the file named by SAFACTORY_START_REQUEST_PATH) and prints one
`SimulationStartResult` as a JSON line. Exit status 0 means that the result counts, whatever it says.
"""

from __future__ import annotations

import json
import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import RunnerError
from safactory.contracts.event import Model

RESULT_PREFIX = "SAFACTORY_RESULT_JSON "
DIAGNOSTIC_PREFIX = "SAFACTORY_RUNNER_DIAGNOSTIC "


class SimulationStartRequest(BaseModel):
    """One episode for one runner; unknown fields are allowed, so that newer callers do not break older runners."""

    model_config = ConfigDict(extra="allow")

    job_id: str
    session_id: str
    agent_name: str
    agent_id: str = ""
    """The session id again, as older adapters expect it."""
    group_id: str = ""
    gateway_base_url: str
    """The root of all session URLs, e.g. http://127.0.0.1:8080/v1/sessions."""
    session_url: str = ""
    """The base URL for an OpenAI client: gateway_base_url/session_id."""
    session_token: str = ""
    """The client's API key: signed, for this session and attempt alone."""
    model: str
    """A route key of the gateway."""
    temperature: float = 1.0
    max_steps: int = -1
    """Model calls this session may make; -1 is unlimited."""
    storage_type: str = "archive"
    env_params: dict[str, JsonValue] = Field(default_factory=dict)
    """The environment's parameters; the dataset row, without ground truth, is under `dataset`."""
    storage_config: dict[str, JsonValue] = Field(default_factory=dict)
    agent_start_timeout_s: float = 600.0
    deadline_unix_s: float = 0.0
    """When the runner will be killed; 0 when it is not known."""
    record_mode: str = "agent_runtime"
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def dataset(self) -> dict[str, JsonValue]:
        """The dataset row."""
        row = self.env_params.get("dataset")
        return row if isinstance(row, dict) else {}


class SimulationStartResult(BaseModel):
    """What a runner says of its episode. Its own reward is a claim: scores are made outside the sandbox."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=True)

    session_id: str
    status: Literal["succeeded", "truncated", "failed", "environment_error"] = "succeeded"
    total_reward: float | None = None
    step_count: int = 0
    terminated: bool = True
    truncated: bool = False
    error_text: str | None = None
    metrics: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("total_reward")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError("total_reward is not a finite number")
        return value


class LaunchSpec(Model):
    """How to start a runner; made from the agent-start YAML."""

    runtime: Literal["process"] = "process"
    command: tuple[str, ...]
    """argv; `{python}` stands for the worker's interpreter."""
    runner_path: str
    """The runner's file, absolute."""
    workdir: str = ""
    """Where it runs; empty for a fresh folder of its own that is removed afterwards."""
    env: dict[str, str] = Field(default_factory=dict)
    warm: bool = True
    """Whether the worker may fork it from a warm parent when the runner defines `warm_up()`."""
    result_mode: Literal["json", "exit_code"] = "json"
    stdout_bytes_max: int = 8 * 1024 * 1024


class RunOutcome(Model):
    """How a runner ended, as its worker saw it, before anybody scored it."""

    reason: EndReason
    cause: str = ""
    """One sentence for a person, empty when there is nothing to explain."""
    result: SimulationStartResult | None = None
    exit_code: int | None = None
    """None when the process was killed or never started."""
    wall_s: float = 0.0
    stdout_bytes: int = 0
    """All that it wrote, also what was not kept."""
    stderr_tail: str = ""
    warm: bool = False


def parse_result(stdout: str, session_id: str) -> SimulationStartResult:
    """Find the one result in a runner's stdout: each JSON-object line with a session_id, prefixed or not, counts.

    Raises:
        RunnerError: there is none, more than one that differ, or one that is not valid or for another session.
    """
    found: list[dict[str, JsonValue]] = []
    # Not splitlines(): a JSON string may hold a raw U+2028, which that takes for the end of a line.
    for line in [*stdout.split("\n"), stdout] if "\n" in stdout.strip() else [stdout]:
        candidate = _json_object(line.strip().removeprefix(RESULT_PREFIX))
        if candidate is not None and "session_id" in candidate and candidate not in found:
            found.append(candidate)
        if len(found) > 1:
            # A flood of results must not be compared each with each.
            raise RunnerError("printed two different results: print exactly one")
    if not found:
        raise RunnerError("printed no result: expected one JSON line with session_id and status on stdout")
    try:
        result = SimulationStartResult.model_validate(found[0])
    except ValidationError as error:
        first = error.errors()[0]
        raise RunnerError(f"printed an invalid result: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if result.session_id != session_id:
        raise RunnerError(f"printed a result for session {result.session_id!r} instead of its own")
    return result


def _json_object(text: str) -> dict[str, JsonValue] | None:
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
