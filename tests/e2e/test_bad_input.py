"""Whatever is wrong with a runner, an evaluator, a file or a model server: a named ending or error with its way out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from safactory.contracts.errors import ConfigError
from safactory.contracts.jobs import JobRequest, SourceFile
from safactory.sdk.errors_shown import EXIT_UNSCORED
from safactory.sdk.evaluation import RunOptions, run
from safactory.testkit.ports import free_port

House = Any
MATH = Path(__file__).parents[2] / "environments" / "math" / "math_config.yaml"
RUNNER = """
import json, os, signal, sys, time, urllib.request

request = json.loads(sys.stdin.read())


def call():
    body = json.dumps({"model": request["model"], "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + request["session_token"]}
    url = request["session_url"] + "/chat/completions"
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()


def say(**fields):
    print(json.dumps({"session_id": request["session_id"], "status": "succeeded", **fields}), flush=True)


call()
exec(request["env_params"]["dataset"]["do"])
"""
EVALUATOR = """
import time


def evaluate(request, spec, trajectory):
    return eval(request.dataset["score"])
"""
FLOOD = "for _ in range(3200): sys.stdout.write('x' * 65535 + chr(10))\nsay()"
DIE_MID_WRITE = "sys.stdout.write('{\"session_id\": ')\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment whose rows say what its runner does and how its evaluator scores."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "runner.py").write_text(RUNNER)
    (folder / "rule_evaluator.py").write_text(EVALUATOR)
    config = folder / "bad_config.yaml"
    config.write_text("environments:\n  - env_name: bad\n    hidden_fields: [score]\n    evaluation_timeout_s: 3\n")
    (folder / "bad_start.yaml").write_text("agent_name: bad\nprocess:\n  warm: false\n")
    return config


def the_job(config: Path, dataset: Path, rows: list[dict[str, str]], **fields: float) -> JobRequest:
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = {"agent_config": SourceFile(path=str(config)), "dataset": str(dataset), **fields}
    return JobRequest.model_validate(request)


@pytest.mark.parametrize(
    ("do", "score", "reason", "says"),
    [
        ("say()", "10", "succeeded", ""),
        ("pass", "10", "agent_error", "printed no result"),
        ("say(step_count=1)\nsay(step_count=2)", "10", "agent_error", "two different results"),
        ("say(total_reward=float('nan'))", "10", "agent_error", "total_reward"),
        ("say()\nsys.exit(3)", "10", "agent_error", "exited with 3"),
        (DIE_MID_WRITE, "10", "agent_error", "SIGKILL"),
        (FLOOD, "10", "succeeded", ""),
        ("say()", "float('nan')", "evaluator_error", "nan"),
        ("say()", "'ten'", "evaluator_error", ""),
        ("say()", "1 / 0", "evaluator_error", "ZeroDivisionError"),
        ("say()", "time.sleep(60)", "evaluator_error", "evaluation_timeout_s"),
        ("say()", "99", "succeeded", ""),
    ],
)
def test_a_runner_or_evaluator_that_goes_wrong_ends_its_session_and_no_other(
    house: House, environment: Path, tmp_path: Path, do: str, score: str, reason: str, says: str
) -> None:
    rows = [{"do": do, "score": score}, {"do": "say()", "score": "5.0"}]
    job_id = house.submit(the_job(environment, tmp_path / "rows.jsonl", rows))
    (row,) = house.results(job_id)["environments"]
    assert sum(row["endings"].values()) == row["planned"] == 2
    assert row["endings"].get("failed") == 1, "the good neighbour scores 5 of 10, which is no pass"
    ended = next(session for session in house.client.sessions(job_id) if session["score"] != 5.0)
    assert ended["reason"] == reason and says in str(ended["cause"]), ended
    assert ended["score"] in ((10.0,) if reason == "succeeded" else (None,))
    assert house.client.audit(job_id)["findings"] == []


def test_a_runner_that_hangs_ends_with_timeout_at_its_deadline(house: House, environment: Path, tmp_path: Path) -> None:
    rows = [{"do": "time.sleep(60)", "score": "10"}]
    job_id = house.submit(the_job(environment, tmp_path / "rows.jsonl", rows, session_timeout_s=2.0))
    assert house.results(job_id)["environments"][0]["endings"] == {"timeout": 1}
    assert "session_timeout_s" in house.client.sessions(job_id)[0]["cause"]


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        (("401", "404", "429", "500"), ("--api-key-env", "--model", "rate limit", "see its own log")),
        (("stall", "cut", "garbage", "no_finish"), ("GATEWAY_SILENCE_TIMEOUT_S", "broke off", "not JSON", "no finish")),
    ],
)
def test_a_model_server_that_fails_is_said_in_the_table_and_the_exit_status_is_3(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str], faults: tuple[str, ...], says: tuple[str, ...]
) -> None:
    dataset = tmp_path / "problems.jsonl"
    dataset.write_text("".join(json.dumps({"problem": f"fault:{name}", "answer": "1"}) + "\n" for name in faults))
    house.engine.script = lambda messages: "ok"
    numbers = tmp_path / "numbers.json"
    options = RunOptions(config=MATH, route="fake", dataset=dataset, home=house.home, json_file=numbers)
    assert run(options) == EXIT_UNSCORED
    shown = capsys.readouterr().out
    assert all(text in shown for text in says), shown
    (row,) = json.loads(numbers.read_text())["environments"]
    assert (row["endings"], row["scored"], row["mean_reward"]) == ({"gateway_error": len(faults)}, 0, None)


def test_a_model_server_that_is_not_there_is_said_so(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    assert run(RunOptions(config=MATH, base_url=url, model="m", limit=1, home=house.home)) == EXIT_UNSCORED
    shown = capsys.readouterr().out
    assert re.search(rf"gateway_error.*model server {url} cannot be reached.*--base-url", shown)


def test_a_wrong_model_name_is_said_so(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    options = RunOptions(config=MATH, base_url=house.base_url, model="wrong", limit=1, home=house.home)
    assert run(options) == EXIT_UNSCORED
    assert "does not know the model 'wrong'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("rows.jsonl", '{"problem": "1", "answer": "1"}\nnot json\n', "rows.jsonl:2: is not JSON"),
        ("rows.jsonl", '{"question": "1", "answer": "1"}\n', "row 1 has no field 'problem'; it has question, answer"),
        ("rows.jsonl", "[1]\n", "rows.jsonl:1: is not a JSON object"),
        ("rows.jsonl", "", "has no rows"),
        ("rows.txt", "1", "is none of .jsonl"),
    ],
)
def test_a_dataset_that_cannot_be_read_is_refused_with_its_line(
    house: House, tmp_path: Path, name: str, text: str, says: str
) -> None:
    dataset = tmp_path / name
    dataset.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)):
        run(RunOptions(config=MATH, route="fake", dataset=dataset, home=house.home))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("environments: [\n  - x: {", r"bad\.yaml:2: is not YAML"),
        ("environments:\n  - env_name: a\n    env_nmu: 3\n", r"bad\.yaml:3.*env_nmu"),
        ("environments:\n  - env_name: a\n    env_num: 0\n", r"bad\.yaml:3.*env_num"),
        ("environments:\n  - env_name: a\n    dataset: nowhere.jsonl\n", "no start configuration|nowhere.jsonl"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_with_its_line(
    house: House, tmp_path: Path, text: str, says: str
) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text(text)
    with pytest.raises(ConfigError, match=says):
        run(RunOptions(config=config, route="fake", home=house.home))


def test_an_unknown_route_is_refused_with_the_names_of_the_others(house: House) -> None:
    with pytest.raises(ConfigError, match="no route 'nope': the routes are fake"):
        run(RunOptions(config=MATH, route="nope", home=house.home))
