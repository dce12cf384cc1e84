"""`RunnerParent`: the worker's handle on one parent process (`warm_parent`), and on the runners forked from it.

A parent that dies takes its runners with it: the kernel kills them, and each waits no longer but raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safactory.contracts.errors import ServiceError
from safactory.runtime_worker import frames, linux_process

END_WAIT_S = 2.0
"""A parent that has not ended its runners by then is killed, and the kernel ends them."""

_runs = itertools.count(1)


@dataclass(frozen=True)
class SpawnOrder:
    """One runner to be started."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    streams: tuple[int, int, int]
    """File descriptors for stdin, stdout and stderr; they stay the caller's to close."""


class SpawnedRunner:
    """One runner that lives, or lived, under a parent."""

    def __init__(self, run: str, parent: RunnerParent) -> None:
        self.run = run
        self.pid = 0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit code, negative for a signal; a ServiceError when its parent died."""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parent = parent

    async def signal(self, number: signal.Signals) -> None:
        """Signal the runner's whole process group; one that is gone is not an error."""
        if not self.ended.done():
            await self._parent.send({"kind": "kill", "run": self.run, "signal": int(number)})


class RunnerParent:
    """One parent process."""

    def __init__(self, runner_path: str, env: Mapping[str, str]) -> None:
        self.runner_path = runner_path
        """The runner's file that it is warm for; empty for a plain parent."""
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-P", "-m", "safactory.runtime_worker.warm_parent"]
            self.process = subprocess.Popen(
                [*argv, str(theirs.fileno()), str(os.getpid()), *([runner_path] if runner_path else [])],
                pass_fds=[theirs.fileno()],
                env=dict(env),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._control = ours
        self._sending = asyncio.Lock()
        self._runners: dict[str, SpawnedRunner] = {}
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._reading = asyncio.create_task(self._read(), name=f"parent-{self.process.pid}")

    @property
    def alive(self) -> bool:
        """Whether it can be given orders."""
        return not self._reading.done()

    @property
    def idle(self) -> bool:
        """Whether no runner lives under it."""
        return not self._runners

    async def ready(self, within_s: float) -> None:
        """Return when it has warmed up.

        Raises:
            ServiceError: it cannot, or not in time; it is ended then.
        """
        try:
            async with asyncio.timeout(within_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.end()
            raise ServiceError(f"warm_up() of {self.runner_path} was not done after {within_s:g} s") from None

    async def spawn(self, order: SpawnOrder) -> SpawnedRunner:
        """Start a runner.

        Raises:
            ServiceError: it could not be started, or the parent died.
        """
        runner = SpawnedRunner(f"{next(_runs)}", self)
        self._runners[runner.run] = runner
        frame: frames.Order = {
            "kind": "spawn",
            "run": runner.run,
            "argv": list(order.argv),
            "cwd": order.cwd,
            "env": dict(order.env),
        }
        await self.send(frame, order.streams)
        try:
            await asyncio.shield(runner.started)
        except asyncio.CancelledError:
            await runner.signal(signal.SIGKILL)
            raise
        return runner

    async def send(self, order: frames.Order, fds: Sequence[int] = ()) -> None:
        """Give an order; one that a dying parent does not take is answered by its runners' failure.

        Cancellation waits for the frame: half a frame would spoil the socket for every runner, and a descriptor that
        its owner has closed by then may be another file's.
        """
        sending = asyncio.create_task(self._send(order, tuple(fds)))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await sending
            raise

    async def end(self) -> None:
        """Close the socket, upon which the parent kills all that is under it, and wait until it is gone."""
        if self.alive:
            self._control.shutdown(socket.SHUT_WR)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_WAIT_S):
                    await asyncio.shield(self._reading)
        if self.alive:
            self.process.kill()
            await self._reading

    async def _send(self, order: frames.Order, fds: tuple[int, ...]) -> None:
        header, body = frames.encode(order)
        async with self._sending:
            with contextlib.suppress(OSError):  # the reader notices that the parent is gone
                while not self._send_header(header, fds):
                    await self._writable()
                await self._loop.sock_sendall(self._control, body)

    def _send_header(self, header: bytes, fds: tuple[int, ...]) -> bool:
        try:
            return socket.send_fds(self._control, [header], fds) > 0
        except BlockingIOError:
            return False

    async def _writable(self) -> None:
        writable = asyncio.Event()
        self._loop.add_writer(self._control.fileno(), writable.set)
        try:
            await writable.wait()
        finally:
            self._loop.remove_writer(self._control.fileno())

    async def _read(self) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._take_reports()
        finally:
            self._lose()
            self._control.close()
            self.process.kill()
            self.process.wait()

    async def _take_reports(self) -> None:
        buffer = bytearray()
        while chunk := await self._loop.sock_recv(self._control, 65536):
            buffer += chunk
            for report in frames.split_reports(buffer):
                self._take(report)

    def _take(self, report: frames.Report) -> None:
        kind = report["kind"]
        if kind == "ready":
            self._ready.set_result(None)
        elif kind == "unfit":
            self._fail(self._ready, report["error"])
        else:
            self._take_of_runner(kind, self._runners[report["run"]], report)

    def _take_of_runner(self, kind: str, runner: SpawnedRunner, report: frames.Report) -> None:
        if kind == "started":
            runner.pid = report["pid"]
            runner.started.set_result(None)
            return
        del self._runners[runner.run]
        if kind == "failed":
            self._fail(runner.started, f"the runner could not be started: {report['error']}")
            runner.ended.cancel()
        else:
            runner.ended.set_result(report["exit_code"])

    def _lose(self) -> None:
        message = "the process that runners are forked from died"
        self._fail(self._ready, message)
        for runner in self._runners.values():
            # The kernel killed the leader; what it had started is still in its group.
            if runner.pid:
                linux_process.kill_group(runner.pid)
            self._fail(runner.started, message)
            self._fail(runner.ended, message)
        self._runners.clear()

    @staticmethod
    def _fail(future: asyncio.Future[None] | asyncio.Future[int], message: str) -> None:
        if not future.done():
            future.set_exception(ServiceError(message))
            future.exception()  # nobody may be waiting, which is no error
