"""Every way in which a runner can go wrong, as a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import psutil
import pytest

from safactory.contracts.endings import EndReason

Worker = Any
Scheduler = Any
KINDS = pytest.mark.parametrize("warm", [False, True], ids=["plain", "warm"])


def as_main(body: str, *, warm: bool) -> str:
    """Put statements into a `main()`, with a `warm_up()` beside it when the runner is to be forked warm."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    offer = "def warm_up():\n    pass\n" if warm else ""
    return f"{offer}def main():\n{lines}\nif __name__ == '__main__':\n    main()\n"


@KINDS
async def test_a_good_runner_succeeds_and_knows_its_deadline(worker: Worker, warm: bool) -> None:
    body = """
left_s = float(os.environ["SAFACTORY_DEADLINE_UNIX_S"]) - time.time()
say(total_reward=1.5, step_count=2, metrics={"left_s": left_s})
"""
    outcome = await worker.run(as_main(body, warm=warm), warm=warm, timeout_s=10)
    assert (outcome.reason, outcome.exit_code, outcome.warm) == (EndReason.SUCCEEDED, 0, warm)
    assert outcome.result is not None and outcome.result.total_reward == 1.5
    assert 5 < outcome.result.metrics["left_s"] <= 10


@pytest.mark.parametrize(
    ("body", "reason", "says"),
    [
        ("pass", EndReason.AGENT_ERROR, "printed no result"),
        ("say(step_count=1)\nsay(step_count=2)", EndReason.AGENT_ERROR, "two different results"),
        ("for n in range(200_000): print(json.dumps({'session_id': n}))", EndReason.AGENT_ERROR, "two different"),
        ("os.kill(os.getpid(), 40)", EndReason.AGENT_ERROR, "signal 40"),
        (
            "print(json.dumps({'session_id': os.environ['SAFACTORY_SESSION_ID'], 'error_text': 'a\\u2028b'}, "
            "ensure_ascii=False))",
            EndReason.SUCCEEDED,
            "a\u2028b",
        ),
        ("say(total_reward=float('nan'))", EndReason.AGENT_ERROR, "total_reward"),
        ("say(metrics={'loss': float('nan')})", EndReason.AGENT_ERROR, "not plain JSON"),
        ("say(error_text='\\ud800')", EndReason.AGENT_ERROR, "not plain JSON"),
        ('print(\'{"session_id": "x", "a": \' + \'[\' * 100_000)', EndReason.AGENT_ERROR, "not plain JSON"),
        ("say(session_id='another')", EndReason.AGENT_ERROR, "'another'"),
        ("say(status='perfect')", EndReason.AGENT_ERROR, "status"),
        ("say(metrics={'big': 'x' * 2_000_000})", EndReason.AGENT_ERROR, "at most"),
        ("say()\nsys.exit(3)", EndReason.AGENT_ERROR, "exited with 3"),
        ("raise RuntimeError('lost my way')", EndReason.AGENT_ERROR, "RuntimeError: lost my way"),
        (
            'sys.stdout.write(\'{"session_id": "\'); sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)',
            EndReason.AGENT_ERROR,
            "SIGKILL",
        ),
        ("say(status='failed', error_text='wrong')", EndReason.FAILED, "wrong"),
        ("say(status='truncated')", EndReason.TRUNCATED_STEPS, ""),
        ("say(status='truncated', metrics={'finish_reason': 'length'})", EndReason.TRUNCATED_TOKENS, ""),
        ("say(status='environment_error', error_text='no display')", EndReason.ENVIRONMENT_ERROR, "no display"),
        ("say()\nsay()", EndReason.SUCCEEDED, ""),
    ],
)
@KINDS
async def test_each_way_to_end_has_its_reason_and_a_cause(
    worker: Worker, body: str, reason: EndReason, says: str, warm: bool
) -> None:
    outcome = await worker.run(as_main(body, warm=warm), warm=warm)
    assert outcome.reason is reason, outcome
    assert says in outcome.cause
    assert outcome.warm is warm
    outcome.model_dump_json()


@KINDS
async def test_a_hanging_runner_times_out_even_when_it_ignores_sigterm(worker: Worker, warm: bool) -> None:
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay()\ntime.sleep(60)"
    started_s = time.monotonic()
    outcome = await worker.run(as_main(body, warm=warm), warm=warm, timeout_s=1)
    assert (outcome.reason, outcome.exit_code, outcome.result) == (EndReason.TIMEOUT, None, None)
    assert time.monotonic() - started_s < 8
    assert "session_timeout_s" in outcome.cause


@KINDS
async def test_sigterm_lets_a_runner_say_goodbye_at_its_deadline(worker: Worker, warm: bool) -> None:
    goodbye = worker.root / "goodbye"
    body = f"""
def leave(*_):
    open({str(goodbye)!r}, "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
time.sleep(60)
"""
    outcome = await worker.run(as_main(body, warm=warm), warm=warm, timeout_s=1.5)
    assert outcome.reason is EndReason.TIMEOUT
    assert goodbye.exists()


@KINDS
async def test_a_flood_of_stdout_neither_blocks_nor_grows_memory_nor_hides_the_result(
    worker: Worker, warm: bool
) -> None:
    body = """
block = b"x" * 1_048_575 + b"\\n"
for _ in range(200):
    sys.stdout.buffer.write(block)
say(step_count=7)
"""
    before_bytes = psutil.Process().memory_info().rss
    outcome = await worker.run(as_main(body, warm=warm), warm=warm, timeout_s=60)
    grown_bytes = psutil.Process().memory_info().rss - before_bytes
    assert outcome.reason is EndReason.SUCCEEDED
    assert outcome.result is not None and outcome.result.step_count == 7
    assert outcome.stdout_bytes > 200 * 1024 * 1024
    assert grown_bytes < 60 * 1024 * 1024


async def test_a_flood_without_a_result_says_how_much_was_not_kept(worker: Worker) -> None:
    outcome = await worker.run("print('y' * 50_000)", stdout_bytes_max=1000)
    assert outcome.reason is EndReason.AGENT_ERROR
    assert "50001 bytes" in outcome.cause


@KINDS
@pytest.mark.parametrize("escapes", [False, True], ids=["in the group", "in a session of its own"])
async def test_no_grandchild_stays(worker: Worker, warm: bool, escapes: bool) -> None:
    pid_file = worker.root / "grandchild"
    body = f"""
child = subprocess.Popen(["sleep", "60"], start_new_session={escapes}, stdout=subprocess.DEVNULL)
open({str(pid_file)!r}, "w").write(str(child.pid))
child.returncode = 0
say()
"""
    outcome = await worker.run(as_main(body, warm=warm), warm=warm)
    assert outcome.reason is EndReason.SUCCEEDED
    await gone(int(pid_file.read_text()))


async def test_a_grandchild_that_holds_the_pipes_does_not_delay_the_end(worker: Worker) -> None:
    outcome = await worker.run("say()\nsubprocess.Popen(['sleep', '60']).returncode = 0")
    assert outcome.reason is EndReason.SUCCEEDED
    assert outcome.wall_s < 5


async def test_a_fork_inside_a_warm_runner_stays_out_of_the_parent(worker: Worker) -> None:
    body = """
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
say(step_count=1)
"""
    source = as_main(body, warm=True)
    for _ in range(3):
        outcome = await worker.run(source, warm=True)
        assert (outcome.reason, outcome.warm) == (EndReason.SUCCEEDED, True)


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        ({"runner_path": "/nowhere/runner.py"}, "is not there"),
        ({"command": ("/nowhere/agent",)}, "could not be started"),
        ({"workdir": "/nowhere/at/all"}, "could not be started"),
    ],
)
async def test_what_cannot_be_started_is_the_factorys_fault(
    worker: Worker, launch: dict[str, object], says: str
) -> None:
    outcome = await worker.run("say()", **launch)
    assert outcome.reason is EndReason.INFRASTRUCTURE_ERROR
    assert outcome.exit_code is None
    assert says in outcome.cause


async def test_a_lease_that_cannot_be_read_is_the_factorys_fault(worker: Worker) -> None:
    lease = worker.lease("say()")
    lease.launch_json = "{}"
    assert (await worker.episodes.run(lease)).reason is EndReason.INFRASTRUCTURE_ERROR


@pytest.mark.parametrize(
    ("code", "reason"),
    [(0, EndReason.SUCCEEDED), (1, EndReason.FAILED), (127, EndReason.AGENT_ERROR)],
)
async def test_the_exit_code_is_the_result_where_the_launch_says_so(
    worker: Worker, code: int, reason: EndReason
) -> None:
    assert (await worker.run(f"sys.exit({code})", result_mode="exit_code")).reason is reason


async def test_a_cancelled_episode_has_killed_its_runner(worker: Worker, scheduler: Scheduler) -> None:
    pid_file = worker.root / "pid"
    lease = worker.lease(f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    episode = asyncio.create_task(worker.episodes.run(lease))
    await scheduler.until(lambda: pid_file.exists() and pid_file.read_text())
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode
    await gone(int(pid_file.read_text()))


async def gone(pid: int) -> None:
    """Wait until a process is no more, and fail when it stays."""
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"process {pid} stayed")
