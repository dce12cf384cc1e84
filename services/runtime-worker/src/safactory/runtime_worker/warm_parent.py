"""The process that runners are forked from: `python -m safactory.runtime_worker.warm_parent FD [RUNNER_FILE]`.

With a runner file it imports that module once, calls its `warm_up()`, and each runner is a fork that calls `main()`.
Without one, each runner is a fork that executes its command. Either way a runner gets a session and process group,
folder, environment and streams of its own, and dies with this process. This process stays single-threaded, reports
each start and end, kills whatever a runner leaves behind before it reaps it, and ends with all of its runners when
the worker's end of the socket closes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from safactory.runtime_worker import frames, linux_process
from safactory.runtime_worker.runner_fork import become_command, become_module, load_runner


def main() -> None:
    """Warm up, then serve until the worker closes the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # The worker's death is seen as the end of the socket, except while warming up.
    linux_process.die_with_parent(signal.SIGTERM, int(sys.argv[2]))
    runner_path = sys.argv[3] if len(sys.argv) > 3 else ""
    runner_main: Callable[[], object] | None = None
    if runner_path:
        try:
            runner_main = load_runner(Path(runner_path))
        except BaseException as error:  # noqa: BLE001 - a runner's module may raise anything, SystemExit included
            lines = traceback.format_exception_only(error)
            _send(control, {"kind": "unfit", "error": f"its import or warm_up() raised {' '.join(lines).strip()}"})
            return
        if linux_process.thread_count() > 1:
            _send(control, {"kind": "unfit", "error": "its import or warm_up() left threads, which a fork would lose"})
            return
    linux_process.adopt_orphans()
    gc.collect()
    gc.freeze()
    _send(control, {"kind": "ready"})
    Parent(control, runner_main).serve()


def _send(control: socket.socket, report: frames.Report) -> None:
    control.sendall(b"".join(frames.encode(report)))


class Parent:
    """Forks runners on order and reaps them."""

    def __init__(self, control: socket.socket, runner_main: Callable[[], object] | None) -> None:
        self._control = control
        self._runner_main = runner_main
        self._runs: dict[int, tuple[str, str]] = {}
        """Of each living runner, by pid: the worker's name for it, and its session."""
        self._child_ended, wake = socket.socketpair()
        self._child_ended.setblocking(False)
        wake.setblocking(False)
        self._wake = wake

    def serve(self) -> None:
        """Take orders and reap runners until the worker closes its end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(self._child_ended, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if self._child_ended in ready:
                with contextlib.suppress(BlockingIOError):
                    self._child_ended.recv(4096)
                self._reap()
            if self._control in ready and not self._obey():
                selector.close()
                return self._end()

    def _obey(self) -> bool:
        try:
            received = frames.receive_order(self._control)
        except ConnectionError:
            received = None
        if received is None:
            return False
        order, fds = received
        if order["kind"] == "kill":
            for pid, (run, _) in self._runs.items():
                if run == order["run"]:
                    linux_process.kill_group(pid, signal.Signals(order["signal"]))
            return True
        try:
            pid = self._fork(order, fds)
        except OSError as error:
            _send(self._control, {"kind": "failed", "run": order["run"], "error": str(error)})
        else:
            self._runs[pid] = (order["run"], order["env"].get("SAFACTORY_SESSION_ID", ""))
            _send(self._control, {"kind": "started", "run": order["run"], "pid": pid})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, order: frames.Order, fds: list[int]) -> int:
        runner_main = self._runner_main
        if runner_main is None:
            return self._fork_command(order, fds)
        pid = os.fork()
        if pid == 0:
            self._become(lambda: become_module(order, fds, runner_main))
        return pid

    def _fork_command(self, order: frames.Order, fds: list[int]) -> int:
        error_reader, error_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(lambda: become_command(order, fds, error_writer))
        os.close(error_writer)
        with os.fdopen(error_reader, "rb") as errors:
            error = errors.read()
        if error:
            os.waitpid(pid, 0)
            raise OSError(error.decode(errors="replace"))
        return pid

    def _become(self, runner: Callable[[], NoReturn]) -> NoReturn:
        # Nothing may escape from here: what called this is the parent's own loop.
        try:
            signal.set_wakeup_fd(-1)
            for end in (self._control, self._child_ended, self._wake):
                end.close()
            runner()
        finally:
            os._exit(127)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            run, _ = self._runs.pop(ended.si_pid, ("", ""))
            if run:
                # Before the reaping, while the dead leader still keeps the group's number from being used again.
                linux_process.kill_group(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            self._kill_strays()
            if run:
                code = os.waitstatus_to_exitcode(status)
                _send(self._control, {"kind": "ended", "run": run, "exit_code": code})

    def _kill_strays(self) -> None:
        """Kill adopted processes whose session is over; those of a running session may stay until it ends."""
        sessions = {session for _, session in self._runs.values()}
        for pid in linux_process.child_pids():
            if pid in self._runs:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                owned = os.getsid(pid) in self._runs
                if not owned and linux_process.environment_value(pid, "SAFACTORY_SESSION_ID") not in sessions:
                    os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        for pid in self._runs:
            linux_process.kill_group(pid)
        self._runs.clear()
        # Each death can hand over orphans, which are killed in the next round.
        while linux_process.child_pids():
            self._kill_strays()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)


if __name__ == "__main__":
    main()
