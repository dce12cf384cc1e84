"""`safactory run` as a person runs it: stopped in its midst and gone on with, and with its broker taken away."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from safactory.sdk import stack_file
from safactory.testkit.fake_engine import FakeEngine, serving

MATH = Path(__file__).parents[2] / "environments" / "math" / "math_config.yaml"
TASKS = 130
"""More than a scheduler queues at once."""


def answer(messages: list[dict[str, Any]]) -> str:
    time.sleep(0.04)
    return "\\boxed{1}"


@pytest.fixture
def base_url() -> Iterator[str]:
    with serving(FakeEngine(script=answer)) as url:
        yield url


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "ones.jsonl"
    row = {"problem": "What is 1?", "answer": "1", "unique_id": "test/1.json", "level": 1}
    path.write_text((json.dumps(row) + "\n") * TASKS)
    return path


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "safactory.sdk", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def begun(child: subprocess.Popen[str], folder: Path) -> list[psutil.Process]:
    """Return the stack's processes once the job has been submitted."""
    assert child.stdout is not None
    while "sessions" not in (line := child.stdout.readline()):
        assert line, "the command ended early"
    running = stack_file.require(folder / ".safactory")
    time.sleep(1.5)
    return [psutil.Process(pid) for pid in running.pids.values()]


def numbers(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "numbers.json").read_text())
    (row,) = found["environments"]
    assert row["planned"] == TASKS == sum(row["endings"].values())
    return {**row, "job_id": found["job_id"]}


def test_a_run_that_was_stopped_goes_on_in_a_new_stack_and_loses_nothing(
    base_url: str, dataset: Path, tmp_path: Path
) -> None:
    words = ["run", str(MATH), "--base-url", base_url, "--model", "fake", "--json", "numbers.json"]
    with start([*words, "--dataset", str(dataset)], tmp_path) as child:
        processes = begun(child, tmp_path)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=60)
    assert child.returncode == 130, said
    partial = numbers(tmp_path)
    assert 0 < partial["scored"] < TASKS
    assert partial["endings"] == {"succeeded": partial["scored"], "cancelled": TASKS - partial["scored"]}
    assert not psutil.wait_procs(processes, timeout=5)[1]
    assert f"succeeded {partial['scored']}" in said

    how = said[said.index("go on with: safactory ") :].removeprefix("go on with: safactory ").splitlines()[0]
    with start(shlex.split(how), tmp_path) as child:
        said, _ = child.communicate(timeout=90)
    assert child.returncode == 0, said
    whole = numbers(tmp_path)
    assert whole["job_id"] == partial["job_id"]
    assert (whole["endings"], whole["scored"]) == ({"succeeded": TASKS}, TASKS)
    assert not (tmp_path / ".safactory" / "stack.json").exists()


def test_a_broker_that_goes_away_ends_the_run_with_a_word_and_no_process_left(
    base_url: str, dataset: Path, tmp_path: Path
) -> None:
    words = ["run", str(MATH), "--base-url", base_url, "--model", "fake", "--json", "numbers.json"]
    with start([*words, "--dataset", str(dataset)], tmp_path) as child:
        processes = begun(child, tmp_path)
        os.kill(stack_file.require(tmp_path / ".safactory").pids["broker"], signal.SIGKILL)
        said, _ = child.communicate(timeout=60)
    assert child.returncode == 1, said
    assert "broker ended with status -9" in said and "--resume" in said
    assert numbers(tmp_path)["endings"].get("infrastructure_error", 0) > 0
    assert not psutil.wait_procs(processes, timeout=5)[1]
    assert not (tmp_path / ".safactory" / "sessions").exists()
