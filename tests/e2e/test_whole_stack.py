"""All processes, one job: faults of the model server, kill -9 of three services in its midst, and nothing lost."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from safactory.contracts.jobs import JobRequest, SourceFile
from safactory.sdk.commands import jobs, sessions
from safactory.sdk.ports import is_free

House = Any
CONFIG = Path(__file__).parents[2] / "environments" / "frozenlake" / "frozenlake_config.yaml"
GOOD = ["SFF", "FFF", "FFG"]
FAULT_OF = {
    ("SFF", "HFF", "FFG"): "401",
    ("SFF", "FHF", "FFG"): "404",
    ("SFF", "FFH", "FFG"): "429",
    ("SFF", "FFF", "HFG"): "500",
    ("SFH", "FFF", "FFG"): "stall",
    ("SFH", "HFF", "FFG"): "cut",
    ("SFH", "FHF", "FFG"): "garbage",
    ("SFH", "FFF", "HFG"): "no_finish",
}
"""Maps on which the model server fails at the first move."""
WAYS_OUT = ("--api-key-env", "--model", "lower the concurrency", "see its own log", "GATEWAY_SILENCE_TIMEOUT_S")
SAMPLES = 2
GOOD_TASKS = 30


def opening(lake: list[str]) -> str:
    """Return how the prompt begins when the player stands at the start."""
    return " ".join(word for line in lake for word in ("row", *line)).replace("S", "P", 1)


FAULT_AT = {opening(list(lake)): fault for lake, fault in FAULT_OF.items()}


def walk(messages: list[dict[str, Any]]) -> str:
    """Answer as a slow player who goes right, then down; or as a fault."""
    prompt = str(messages[-1]["content"])
    time.sleep(0.04)
    for start, fault in FAULT_AT.items():
        if prompt.startswith(start):
            return f"fault:{fault}"
    return "down" if re.search(r"right [WH]", prompt) else "right"


def the_job(folder: Path) -> JobRequest:
    dataset = folder / "lakes.jsonl"
    lakes = [GOOD] * GOOD_TASKS + [list(lake) for lake in FAULT_OF]
    dataset.write_text("".join(json.dumps({"map": lake}) + "\n" for lake in lakes))
    source = SourceFile(path=str(CONFIG))
    return JobRequest(agent_config=source, dataset=str(dataset), samples=SAMPLES, session_timeout_s=40)


def ended(status: dict[str, Any]) -> int:
    return int(sum(status["ended"].values()))


def test_faults_and_kills_leave_every_session_with_one_ending_and_no_trace(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house.engine.script = walk
    job_id = house.submit(the_job(tmp_path))
    for count, victim in ((4, "runtime-worker"), (16, "evaluator"), (28, "scheduler")):
        house.until(job_id, lambda status, count=count: ended(status) >= count)
        house.stack.restart(victim)
    results = house.results(job_id)

    (row,) = results["environments"]
    failures, good = SAMPLES * len(FAULT_OF), SAMPLES * GOOD_TASKS
    assert row["endings"] == {"succeeded": good, "gateway_error": failures}
    assert (row["planned"], row["scored"], row["mean_reward"]) == (good + failures, good, 10.0)
    rows = house.client.sessions(job_id, limit=1000)
    assert len({row["session_id"] for row in rows}) == len(rows) == good + failures
    causes = {str(row["cause"]) for row in rows if row["reason"] == "gateway_error"}
    assert all(any(way in cause for cause in causes) for way in WAYS_OUT), causes
    assert house.client.audit(job_id)["findings"] == []

    winner = next(row["session_id"] for row in rows if row["reason"] == "succeeded")
    capsys.readouterr()
    assert sessions.show(winner, house.home, as_json=False) == 0
    shown = capsys.readouterr().out
    assert "step 4" in shown and "assistant: down" in shown and "10.00 of 10" in shown
    assert jobs.audit(job_id, house.home, as_json=False) == 0
    assert "complete: 76 of 76 sessions ended" in capsys.readouterr().out
    _leaves_nothing(house)


def _leaves_nothing(house: House) -> None:
    ours = [psutil.Process(pid) for pid in house.stack.pids.values()]
    ours += [child for process in ours for child in process.children(recursive=True)]
    house.stack.stop()
    gone, alive = psutil.wait_procs(ours, timeout=5)
    assert not alive and len(gone) == len(ours)
    assert not (house.home / "sessions").exists()
    assert all(is_free(process.port) for process in house.stack.plan.processes)
