"""The calls of Linux that tie the life of one process to another; nothing here needs more than the standard library.

It is imported by the parents that runners are forked from, so it must stay light.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number: signal.Signals, parent_pid: int) -> None:
    """Have the kernel send a signal to this process when its parent dies, even when that is by kill -9.

    The setting lasts over an exec and is not passed on to children.

    Raises:
        OSError: the parent died before this call, or the kernel refused.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != parent_pid:
        raise OSError(f"the parent {parent_pid} is already gone")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none escapes by leaving its group."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_group(pid: int, signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads; a group that is gone is what the caller wants."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal_number)


def child_pids() -> list[int]:
    """Return the children of the calling process's main thread, adopted ones included."""
    pid = os.getpid()
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def thread_count() -> int:
    """Return how many threads this process has, those of C libraries included."""
    return len(list(Path("/proc/self/task").iterdir()))


def environment_value(pid: int, name: str) -> str:
    """Return a variable of another process as it was at its exec; empty when it is not there or not readable."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    prefix = f"{name}=".encode()
    values = [entry[len(prefix) :] for entry in block.split(b"\0") if entry.startswith(prefix)]
    return values[0].decode(errors="replace") if values else ""


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
