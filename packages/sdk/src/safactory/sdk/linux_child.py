"""Children that do not outlive their parent, whatever kills it."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def start_child(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that Ctrl-C reaches only its parent, with all output in a file.

    Must be called from the main thread: the kernel's death signal follows the thread that started the child.
    """

    def die_with_parent() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # no threads run yet when children start
        )
