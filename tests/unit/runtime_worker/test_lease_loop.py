"""The worker's side of the lease contract, against a scheduler's side over real gRPC."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from safactory.contracts.endings import EndReason
from safactory.infra.health import REGISTRY
from safactory.runtime_worker.lease_loop import LeaseLoop
from safactory.runtime_worker.scheduler_client import SchedulerClient

Worker = Any
Scheduler = Any


class Loop:
    """A worker's lease loop that is running."""

    def __init__(self, worker: Worker, scheduler: Scheduler, slots: int) -> None:
        settings = worker.settings.model_copy(update={"slots": slots, "acquire_wait_s": 0.3, "shutdown_report_s": 1.0})
        self.client = SchedulerClient(f"127.0.0.1:{scheduler.port}", "w1")
        self.loop = LeaseLoop(self.client, worker.episodes.run, settings)


@pytest.fixture
async def loop(worker: Worker, scheduler: Scheduler) -> AsyncIterator[Loop]:
    running = Loop(worker, scheduler, slots=2)
    await running.client.start()
    await running.loop.start()
    yield running
    await running.loop.stop()
    await running.client.close()


async def test_every_lease_is_run_and_reported_within_the_slots(
    worker: Worker, scheduler: Scheduler, loop: Loop
) -> None:
    leases = [worker.lease("time.sleep(0.2)\nsay()") for _ in range(5)]
    scheduler.waiting.extend(leases)
    await scheduler.until(lambda: len(scheduler.completed) == 5)
    assert {outcome.reason for outcome in scheduler.completed.values()} == {EndReason.SUCCEEDED}
    assert scheduler.beats
    assert max(len(ids) for ids in scheduler.beats) <= 2
    assert all(request.slots == 2 and request.max_leases <= 2 for request in scheduler.acquired)
    assert list(scheduler.acquired[0].runtimes) == ["process"]


async def test_a_report_is_repeated_until_it_is_answered(worker: Worker, scheduler: Scheduler, loop: Loop) -> None:
    scheduler.failures = 3
    lease = worker.lease("say()")
    scheduler.waiting.append(lease)
    await scheduler.until(lambda: scheduler.completed)
    assert scheduler.completed[lease.lease_id].reason is EndReason.SUCCEEDED


async def test_a_fenced_report_is_dropped_and_counted(worker: Worker, scheduler: Scheduler, loop: Loop) -> None:
    scheduler.refuse = "fenced"
    before = _count("runtime_worker_outcomes_dropped_total", why="fenced")
    scheduler.waiting.append(worker.lease("say()"))
    await scheduler.until(lambda: _count("runtime_worker_outcomes_dropped_total", why="fenced") == before + 1)
    assert len(scheduler.completed) == 1


async def test_a_stopped_lease_is_killed_and_not_reported(worker: Worker, scheduler: Scheduler, loop: Loop) -> None:
    pid_file = worker.root / "pid"
    lease = worker.lease(f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    scheduler.waiting.append(lease)
    await scheduler.until(lambda: pid_file.exists() and pid_file.read_text())
    scheduler.stop.add(lease.lease_id)
    await scheduler.until(lambda: not psutil.pid_exists(int(pid_file.read_text())))
    following = worker.lease("say()")
    scheduler.waiting.append(following)
    await scheduler.until(lambda: scheduler.completed)
    assert list(scheduler.completed) == [following.lease_id]


async def test_a_scheduler_that_comes_back_is_found_again(worker: Worker, scheduler: Scheduler, loop: Loop) -> None:
    scheduler.waiting.append(worker.lease("time.sleep(0.5)\nsay()"))
    await scheduler.until(lambda: scheduler.beats)
    await scheduler.end()
    await asyncio.sleep(1)
    assert not scheduler.completed
    await scheduler.start()
    await scheduler.until(lambda: scheduler.completed)


async def test_a_stopping_worker_kills_and_reports_within_seconds(
    worker: Worker, scheduler: Scheduler, loop: Loop
) -> None:
    lease = worker.lease("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)")
    scheduler.waiting.append(lease)
    await scheduler.until(lambda: scheduler.beats)
    started_s = time.monotonic()
    await loop.loop.stop()
    assert time.monotonic() - started_s < 3
    outcome = scheduler.completed[lease.lease_id]
    assert outcome.reason is EndReason.INFRASTRUCTURE_ERROR
    assert "worker shut down" in outcome.cause


async def test_a_stop_without_a_scheduler_gives_up_in_time(worker: Worker, scheduler: Scheduler, loop: Loop) -> None:
    scheduler.waiting.append(worker.lease("time.sleep(60)"))
    await scheduler.until(lambda: scheduler.beats)
    await scheduler.end()
    started_s = time.monotonic()
    await loop.loop.stop()
    assert time.monotonic() - started_s < 5
    await scheduler.start()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_no_runner_outlives_its_worker(
    worker: Worker, scheduler: Scheduler, tmp_path: Path, end: signal.Signals
) -> None:
    pids = tmp_path / "pids"
    body = f"""
child = subprocess.Popen(["sleep", "60"])
open({str(pids)!r}, "a").write(f"{{os.getpid()}} {{child.pid}} {{os.getppid()}}\\n")
time.sleep(60)
"""
    warm = "def warm_up():\n    pass\ndef main():\n" + "\n".join(f"    {line}" for line in body.strip().splitlines())
    scheduler.waiting.extend([worker.lease(body), worker.lease(warm, warm=True)])
    env = {
        "PATH": "/usr/bin:/bin",
        "RUNTIME_WORKER_SCHEDULER": f"127.0.0.1:{scheduler.port}",
        "RUNTIME_WORKER_FOLDER": str(tmp_path / "own"),
        "RUNTIME_WORKER_ACQUIRE_WAIT_S": "0.3",
        "BUS_SERVERS": "127.0.0.1:9",
        "BUS_WAL_DIR": str(tmp_path / "own_wal"),
        "BUS_PUBLISH_TIMEOUT_S": "0.1",
        "OBJECTS_URL": f"file://{tmp_path}/own_objects",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "safactory.runtime_worker", env=env)
    await scheduler.until(lambda: pids.exists() and len(pids.read_text().splitlines()) == 2)
    os.kill(process.pid, end)
    await process.wait()
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 6
    await scheduler.until(lambda: not any(psutil.pid_exists(pid) for pid in started), 5)
    if end is signal.SIGTERM:
        assert [outcome.reason for outcome in scheduler.completed.values()] == [EndReason.INFRASTRUCTURE_ERROR] * 2
        assert not (tmp_path / "own").exists()
    else:
        # The next worker in the same place clears away what the killed one could not.
        from safactory.runtime_worker.session_folder import WorkerFolder

        following = WorkerFolder(tmp_path / "own", "following")
        following.make()
        assert [path.name for path in (tmp_path / "own").iterdir()] == ["following"]
        following.remove()


def _count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
