"""What a fork does to become a runner: isolation first, then the command's exec or the warm module's `main()`.

It runs in the parents of `warm_parent`, so it must stay light. A fork that is to become a runner never returns.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from safactory.runtime_worker import frames, linux_process

_RESET_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)


def load_runner(path: Path) -> Callable[[], object]:
    """Import a runner's file as Python would run it, call its `warm_up()`, and return its `main`.

    Raises:
        Exception: whatever the file raises.
    """
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    module.warm_up()
    runner_main: Callable[[], object] = module.main
    return runner_main


def become_command(order: frames.Order, fds: list[int], error_writer: int) -> NoReturn:
    """Execute the order's command; a failure is written to `error_writer`, which a good exec closes."""
    try:
        _isolate(order, fds)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:  # noqa: BLE001 - the parent must learn of any failure
        os.write(error_writer, str(error).encode()[:1000])
    finally:
        os._exit(127)


def become_module(order: frames.Order, fds: list[int], runner_main: Callable[[], object]) -> NoReturn:
    """Call the warm module's `main()` and exit as a Python script would."""
    code = 1
    try:
        _isolate(order, fds)
        os.environ.clear()  # noqa: TID251 - the fork gets the runner's environment in place of its parent's
        os.environ.update(order["env"])  # noqa: TID251
        sys.argv = list(order["argv"])
        gc.enable()
        _reseed()
        code = _exit_code(runner_main)
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the exit code tells the worker, stderr tells a person
        code = code or 1
        traceback.print_exc()
    finally:
        os._exit(code)


def _isolate(order: frames.Order, fds: list[int]) -> None:
    parent_pid = os.getppid()
    os.setsid()
    linux_process.die_with_parent(signal.SIGKILL, parent_pid)
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    for fd in fds:
        os.close(fd)
    os.chdir(order["cwd"])


def _exit_code(runner_main: Callable[[], object]) -> int:
    try:
        answer = runner_main()
    except SystemExit as end:
        answer = end.code
        if isinstance(answer, str):
            sys.stderr.write(f"{answer}\n")
            return 1
    except BaseException:  # noqa: BLE001 - what a script would print before it exits with 1
        traceback.print_exc()
        return 1
    return answer & 0xFF if isinstance(answer, int) else 0


def _reseed() -> None:
    """Give each fork random numbers of its own, as each process has them."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.seed()
