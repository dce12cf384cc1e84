"""How many sessions a second the whole stack runs: FrozenLake through every process, on the embedded stack.

    python benchmarks/sessions_per_second.py [--sessions N] [--slots N]

Starts a stack of its own in a temporary folder, with the torch engine and a model of random weights (six moves a
session, the worst case), evaluates N sessions, and prints sessions and model calls a second with each process's CPU
seconds a session. Nothing is kept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from safactory.contracts.jobs import JobRequest, SourceFile
from safactory.sdk.client import Safactory
from safactory.sdk.interrupts import stop_flag
from safactory.sdk.local_stack import own_stack
from safactory.sdk.stack_plan import Policy, plan_stack

ENVIRONMENT = Path(__file__).resolve().parents[1] / "environments" / "frozenlake"
ROWS = 39
"""Of the training maps."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with its ended children."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def request(samples: int, max_steps: int) -> JobRequest:
    config = SourceFile(path=str(ENVIRONMENT / "frozenlake_config.yaml"))
    return JobRequest(agent_config=config, samples=samples, max_steps=max_steps, session_timeout_s=60)


def measure(home: Path, samples: int, slots: int, max_steps: int) -> None:
    command = [sys.executable, "-m", "safactory.inference.seed_model", str(home / "model"), "--seed", "2"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    plan = plan_stack(home, policy=Policy(model_dir=home / "model"), slots=slots)
    with (
        stop_flag() as flag,
        own_stack(plan, flag, print) as stack,
        Safactory(plan.urls["scheduler"], plan.urls["dataelf"]) as client,
    ):

        def run(count: int) -> tuple[str, float]:
            started_s = time.monotonic()
            job_id = str(client.submit(request(count, max_steps))["job_id"])
            while client.job(job_id)["state"] != "ended":
                stack.check()
                flag.sleep(0.2)
            return job_id, time.monotonic() - started_s

        run(1)  # fills the warm pool
        before = {name: cpu_s(pid) for name, pid in stack.pids.items()}
        job_id, wall_s = run(samples)
        spent = {name: cpu_s(pid) - before[name] for name, pid in stack.pids.items()}
        while int(str(client.results(job_id)["ended"])) < samples * ROWS:
            flag.sleep(0.2)
        calls = int(str(client.time_spent(job_id)["calls"]))
    sessions = samples * ROWS
    print(f"{sessions} sessions, {calls} model calls in {wall_s:.1f} s on {psutil.cpu_count()} cores, {slots} slots")
    print(f"{sessions / wall_s:.1f} sessions/s, {calls / wall_s:.0f} calls/s")
    for name, seconds in spent.items():
        print(f"  {name:<15} {1000 * seconds / sessions:6.1f} ms CPU a session")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=780)
    parser.add_argument("--slots", type=int, default=24)
    parser.add_argument("--max-steps", type=int, default=-1, help="model calls a session; -1: as many as it takes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), max(1, round(options.sessions / ROWS)), options.slots, options.max_steps)


if __name__ == "__main__":
    main()
