"""What a runner is given: the whole contract, and nothing of the worker's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

Worker = Any

TELL = """
home, tmp, cwd = os.environ["HOME"], os.environ["TMPDIR"], os.getcwd()
say(metrics={"env": dict(os.environ), "cwd": cwd, "sid": os.getsid(0) == os.getpid(), "request": request,
             "file": json.load(open(os.environ["SAFACTORY_START_REQUEST_PATH"])), "folders": [home, tmp, cwd]})
"""


async def test_the_environment_is_the_contract_and_no_secret_of_the_worker(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTS_S3_SECRET_KEY", "of the factory")
    outcome = await worker.run(TELL, env={"EXTRA": "1", "SAFACTORY_SESSION_TOKEN": "forged"})
    told = outcome.result.metrics
    env = told["env"]
    assert "OBJECTS_S3_SECRET_KEY" not in env
    unknown = {name for name in env if not name.startswith(("SAFACTORY_", "OPENAI_", "OPENROUTER_", "ANTHROPIC_"))}
    assert unknown <= {"PATH", "HOME", "LANG", "TMPDIR", "EXTRA", "LC_CTYPE"}
    assert env["SAFACTORY_SESSION_TOKEN"] == env["OPENAI_API_KEY"] == "signed-token"
    assert env["SAFACTORY_GATEWAY_SESSION_URL"] == env["OPENAI_BASE_URL"] == told["request"]["session_url"]
    assert env["SAFACTORY_GATEWAY_SESSION_URL_CONTAINER"].startswith("http://host.docker.internal:9/v1/sessions/")
    assert env["SAFACTORY_AGENT_ID"] == env["SAFACTORY_SESSION_ID"] == told["request"]["session_id"]
    assert json.loads(env["SAFACTORY_START_REQUEST_JSON"]) == told["request"] == told["file"]
    assert told["request"]["deadline_unix_s"] == pytest.approx(float(env["SAFACTORY_DEADLINE_UNIX_S"]), abs=0.01)
    assert told["sid"]
    assert len(set(told["folders"])) == 3 and all(str(worker.root) in folder for folder in told["folders"])


async def test_a_row_too_big_for_a_variable_arrives_by_stdin_and_by_file(worker: Worker) -> None:
    source = """
path = os.environ["SAFACTORY_START_REQUEST_PATH"]
same = json.load(open(path)) == request
say(metrics={"bytes": len(request["env_params"]["dataset"]["text"]), "same": same,
             "variable": "SAFACTORY_START_REQUEST_JSON" in os.environ})
"""
    outcome = await worker.episodes.run(worker.lease(source, row={"text": "x" * 3_000_000}))
    assert outcome.result.metrics == {"bytes": 3_000_000, "same": True, "variable": False}


async def test_a_result_in_its_file_counts_like_a_printed_one(worker: Worker) -> None:
    write = "open(os.environ['SAFACTORY_RESULT_PATH'], 'w').write(json.dumps(%s, indent=2))"
    result = "{'session_id': os.environ['SAFACTORY_SESSION_ID'], 'status': 'failed', 'step_count': 4}"
    outcome = await worker.run("print('thinking')\n" + write % result)
    assert (outcome.reason.value, outcome.result.step_count) == ("failed", 4)
    contradicting = await worker.run("say()\n" + write % result)
    assert "two different results" in contradicting.cause
