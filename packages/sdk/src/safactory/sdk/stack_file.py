"""`.safactory/stack.json`: where the running local stack is, for every later command. Readable by its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from safactory.contracts.errors import ConfigError
from safactory.sdk.stack_plan import StackPlan

HOME = Path(".safactory")


class StackFile(BaseModel):
    """What is known of a running stack."""

    supervisor_pid: int
    supervisor_started: float
    """Creation time of that process: its number may be used again by another."""
    pids: dict[str, int]
    plan: StackPlan

    def alive(self) -> bool:
        """Whether the stack still runs."""
        try:
            return abs(psutil.Process(self.supervisor_pid).create_time() - self.supervisor_started) < 1
        except psutil.Error:
            return False


def write(home: Path, plan: StackPlan, pids: dict[str, int]) -> None:
    """Make this process's stack known."""
    me = psutil.Process()
    content = StackFile(supervisor_pid=me.pid, supervisor_started=me.create_time(), pids=pids, plan=plan)
    path = home / "stack.json"
    path.touch(mode=0o600)
    path.write_text(content.model_dump_json(indent=1))


def remove(home: Path) -> None:
    """Forget this process's stack."""
    content = read(home)
    if content and content.supervisor_pid == os.getpid():
        (home / "stack.json").unlink(missing_ok=True)


def read(home: Path = HOME) -> StackFile | None:
    """Return the stack that runs; None when there is none."""
    try:
        content = StackFile.model_validate_json((home / "stack.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return content if content.alive() else None


def require(home: Path = HOME) -> StackFile:
    """Return the stack that runs.

    Raises:
        ConfigError: there is none.
    """
    content = read(home)
    if content is None:
        raise ConfigError(f"no stack runs in {home.absolute()}: start one with `safactory up`")
    return content
