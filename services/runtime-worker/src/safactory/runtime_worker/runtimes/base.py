"""What a runtime is: something that runs one runner to its end, whatever that end is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from safactory.contracts.runner import LaunchSpec
from safactory.runtime_worker.session_folder import SessionFolder


@dataclass(frozen=True)
class RunnerStart:
    """One runner to be run."""

    launch: LaunchSpec
    folder: SessionFolder
    """Made already, with the request in it."""
    variables: dict[str, str]
    """The runner's whole environment."""
    deadline_unix_s: float


@dataclass(frozen=True)
class RunnerExit:
    """How a runner came to its end, without any judgement."""

    exit_code: int
    """Negative for the signal that ended it."""
    timed_out: bool
    """Whether it was still running at its deadline and was killed."""
    stdout: str
    """What was kept of it."""
    stdout_bytes: int
    """All that it wrote."""
    stderr_tail: str
    wall_s: float
    warm: bool


class Runtime(Protocol):
    """One way of running runners."""

    async def run(self, start: RunnerStart) -> RunnerExit:
        """Run one to its end; a cancelled call has killed it before it returns.

        Raises:
            ServiceError: it could not be started, or what it ran in was lost.
        """
        ...

    async def end(self) -> None:
        """Give up whatever is kept between runs."""
        ...
