"""`Stack`: the processes of a plan, started in order, watched, and stopped together."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

from safactory.contracts.errors import ServiceError
from safactory.sdk.interrupts import StopFlag
from safactory.sdk.linux_child import start_child
from safactory.sdk.stack_plan import Process, StackPlan

READY_S = 90.0
TERM_S = 6.0
"""Between SIGTERM and SIGKILL."""
DRAIN_S = 12.0
"""The same for dataelf, which first archives all that the others have left on the bus."""
LOG_LINES = 15


class Stack:
    """A running stack; use it as a context manager, so that it never outlives its block."""

    def __init__(self, plan: StackPlan, flag: StopFlag, say: Callable[[str], None]) -> None:
        self.plan = plan
        self._flag = flag
        self._say = say
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Stack:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: child.pid for name, child in self._children.items()}

    def check(self) -> None:
        """Return when every process runs.

        Raises:
            ServiceError: one has ended; with the last lines of its log.
        """
        for name, child in self._children.items():
            if child.poll() is not None:
                raise ServiceError(
                    f"{name} ended with status {child.returncode}; the end of {self._log(name)}:\n{self._tail(name)}"
                )

    def stop(self) -> None:
        """End every process: the worker while the scheduler still listens to its last reports, then those that write,
        then dataelf, which archives what they wrote, then the broker.
        """
        children = dict(self._children)
        first = [children.pop(name) for name in ("runtime-worker",) if name in children]
        last = [children.pop(name) for name in ("dataelf", "broker") if name in children]
        _end(first)
        _end(children.values())
        for child in last:
            _end([child], DRAIN_S)
        self._children.clear()
        shutil.rmtree(self.plan.home / "sessions", ignore_errors=True)

    def restart(self, name: str) -> None:
        """Kill a process as a crash would, and start it again.

        Raises:
            ServiceError: it did not come up again.
        """
        process = next(process for process in self.plan.processes if process.name == name)
        child = self._children[name]
        _signal(child, signal.SIGKILL)
        child.wait()
        self._children[name] = start_child(process.command, process.env, self._log(name))
        self._until(lambda: _is_ready(process.ready_url), name)

    def _start(self) -> None:
        started_s = time.monotonic()
        (self.plan.home / "logs").mkdir(parents=True, exist_ok=True)
        brokers = [process for process in self.plan.processes if process.name == "broker"]
        services = [process for process in self.plan.processes if process not in brokers]
        for broker in brokers:
            self._launch(broker)
            self._until(lambda port=broker.port: _listens(port), broker.name)  # type: ignore[misc]
        for process in services:
            self._launch(process)
        self._say(
            f"starting {', '.join(process.name for process in self.plan.processes)} (logs in {self.plan.home / 'logs'})"
        )
        for process in services:
            self._until(lambda process=process: _is_ready(process.ready_url), process.name)  # type: ignore[misc]
        self._say(f"all ready after {time.monotonic() - started_s:.1f} s")

    def _launch(self, process: Process) -> None:
        log = self._log(process.name)
        log.write_bytes(b"")
        self._children[process.name] = start_child(process.command, process.env, log)

    def _until(self, ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + READY_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ServiceError(f"{name} is not ready after {READY_S:g} s; the end of its log:\n{self._tail(name)}")
            self._flag.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self.plan.home / "logs" / f"{name}.log"

    def _tail(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-LOG_LINES:])


def _end(children: Iterable[subprocess.Popen[bytes]], term_s: float = TERM_S) -> None:
    alive = [child for child in children if child.poll() is None]
    for child in alive:
        _signal(child, signal.SIGTERM)
    deadline = time.monotonic() + term_s
    for child in alive:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, deadline - time.monotonic()))
    for child in alive:
        # The whole session: what a service started in its own session ends with it.
        _signal(child, signal.SIGKILL)
        child.wait()


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number is signal.SIGKILL:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
