"""Warm parents: what they share, what they must not, and what happens when one is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from safactory.contracts.endings import EndReason

Worker = Any
Scheduler = Any

COUNTING = """
import random
loaded = os.getpid()
warmed = []
def warm_up():
    warmed.append(os.getpid())
def main():
    say(metrics={"loaded_by": loaded, "warmed_by": warmed, "parent": os.getppid(), "luck": random.random(),
                 "pid": os.getpid()})
"""


async def test_one_import_serves_many_forks_with_luck_of_their_own(worker: Worker) -> None:
    runner = _file(worker, COUNTING)
    leases = [worker.lease_of(runner, warm=True) for _ in range(12)]
    outcomes = await asyncio.gather(*(worker.episodes.run(lease) for lease in leases))
    told = [outcome.result.metrics for outcome in outcomes]
    assert len({metrics["loaded_by"] for metrics in told}) == 1
    assert all(metrics["warmed_by"] == [metrics["parent"]] == [metrics["loaded_by"]] for metrics in told)
    assert len({metrics["luck"] for metrics in told}) == len({metrics["pid"] for metrics in told}) == 12


async def test_an_edited_runner_gets_a_new_parent_and_the_old_one_ends(worker: Worker) -> None:
    runner = _file(worker, COUNTING)
    first = await worker.episodes.run(worker.lease_of(runner, warm=True))
    runner.write_text(runner.read_text().replace("warmed = []", "warmed = []  # edited"))
    second = await worker.episodes.run(worker.lease_of(runner, warm=True))
    old, new = first.result.metrics["parent"], second.result.metrics["parent"]
    assert second.warm and old != new
    for _ in range(100):
        if not psutil.pid_exists(old):
            break
        await asyncio.sleep(0.05)
    assert not psutil.pid_exists(old)


async def test_a_parent_that_dies_fails_its_sessions_and_is_replaced(worker: Worker, scheduler: Scheduler) -> None:
    pids = worker.root / "pids"
    runner = _file(
        worker,
        f"""
def warm_up():
    pass
def main():
    if not os.path.exists({str(pids)!r}):
        child = subprocess.Popen(["sleep", "60"])
        open({str(pids)!r}, "w").write(f"{{os.getppid()}} {{os.getpid()}} {{child.pid}}\\n")
        time.sleep(60)
    say()
""",
    )
    episode = asyncio.create_task(worker.episodes.run(worker.lease_of(runner, warm=True)))
    await scheduler.until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    parent, *rest = map(int, pids.read_text().split())
    os.kill(parent, signal.SIGKILL)
    outcome = await asyncio.wait_for(episode, 5)
    assert outcome.reason is EndReason.INFRASTRUCTURE_ERROR
    assert "forked from died" in outcome.cause
    assert all([await _is_gone(pid) for pid in rest])
    again = await worker.episodes.run(worker.lease_of(runner, warm=True))
    assert (again.reason, again.warm) == (EndReason.SUCCEEDED, True)


async def test_a_runner_whose_warm_up_fails_is_started_plainly(worker: Worker) -> None:
    plainly = "\nif __name__ == '__main__':\n    main()\n"
    for body in ("    raise RuntimeError('no')", "    sys.exit('no')", "    os._exit(1)", THREAD):
        runner = _file(worker, f"import threading\ndef warm_up():\n{body}\ndef main():\n    say(){plainly}")
        for _ in range(2):
            outcome = await worker.episodes.run(worker.lease_of(runner, warm=True))
            assert (outcome.reason, outcome.warm) == (EndReason.SUCCEEDED, False), outcome


THREAD = "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


async def test_a_warm_up_that_hangs_is_given_up(worker: Worker) -> None:
    worker.episodes._runtime._pool._warm_up_timeout_s = 0.5
    source = "def warm_up():\n    time.sleep(60)\ndef main():\n    say()\nif __name__ == '__main__':\n    main()\n"
    started_s = time.monotonic()
    outcome = await worker.episodes.run(worker.lease_of(_file(worker, source), warm=True))
    assert (outcome.reason, outcome.warm) == (EndReason.SUCCEEDED, False)
    assert time.monotonic() - started_s < 8


async def test_only_what_offers_warm_up_and_is_allowed_to_is_warmed(worker: Worker) -> None:
    plainly = "if __name__ == '__main__':\n    main()\n"
    offering = f"def warm_up():\n    pass\ndef main():\n    say()\n{plainly}"
    assert not (await worker.run(f"def main():\n    say()\n{plainly}", warm=True)).warm
    assert not (await worker.run(offering, warm=False)).warm
    flagged = worker.lease(offering, warm=True)
    flagged.launch_json = flagged.launch_json.replace('"{python}",', '"{python}","-u",')
    assert not (await worker.episodes.run(flagged)).warm
    assert (await worker.run(offering, warm=True)).warm


async def test_a_fork_ends_as_a_script_does(worker: Worker) -> None:
    last_words = worker.root / "last_words"
    outcome = await worker.run(
        f"""
import atexit, threading
def warm_up():
    pass
def main():
    atexit.register(lambda: open({str(last_words)!r}, "w").write("bye"))
    unflushed = json.dumps({{"session_id": os.environ["SAFACTORY_SESSION_ID"], "step_count": 9}})
    threading.Thread(target=lambda: (time.sleep(0.3), sys.stdout.write(unflushed))).start()
    sys.exit(0)
""",
        warm=True,
    )
    assert outcome.reason is EndReason.SUCCEEDED
    assert outcome.result.step_count == 9
    assert last_words.read_text() == "bye"


async def test_parents_beyond_the_limit_end_while_idle(worker: Worker) -> None:
    worker.episodes._runtime._pool._parents_max = 2
    parents = []
    for number in range(4):
        runner = _file(worker, COUNTING + f"# {number}\n")
        outcome = await worker.episodes.run(worker.lease_of(runner, warm=True))
        parents.append(outcome.result.metrics["parent"])
    await asyncio.sleep(0.6)
    assert [psutil.pid_exists(pid) for pid in parents] == [False, False, True, True]


def _file(worker: Worker, source: str) -> Path:
    lease = worker.lease(source)
    return Path(json.loads(lease.launch_json)["runner_path"])


async def _is_gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        await asyncio.sleep(0.05)
    return False
