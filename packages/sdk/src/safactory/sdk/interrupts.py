"""Ctrl-C as a flag that is looked at in safe places, so that nothing is left half-started."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupted(Exception):
    """The person, or the system, asked to stop."""


class StopFlag:
    """Set by SIGINT and SIGTERM."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def is_set(self) -> bool:
        """Whether it was asked for."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask for it."""
        self._event.set()

    def clear(self) -> None:
        """Be ready to be asked once more."""
        self._event.clear()

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            Interrupted: it was asked for, before or meanwhile.
        """
        if self._event.wait(seconds):
            raise Interrupted


@contextlib.contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """Turn SIGINT and SIGTERM into a flag inside the block."""
    flag = StopFlag()

    def stop(number: int, frame: FrameType | None) -> None:
        flag.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
