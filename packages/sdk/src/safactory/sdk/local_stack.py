"""`local_stack`: the stack that runs here, or one of our own for as long as a command lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from safactory.sdk import stack_file
from safactory.sdk.interrupts import StopFlag
from safactory.sdk.stack import Stack
from safactory.sdk.stack_plan import Policy, StackPlan, plan_stack


class LocalStack(NamedTuple):
    """A stack that can be used."""

    plan: StackPlan
    check: Callable[[], None]
    """Returns while all of it runs."""
    ours: bool
    """Whether it ends with the command."""


@contextmanager
def local_stack(
    home: Path, flag: StopFlag, say: Callable[[str], None], *, policy: Policy | None = None
) -> Iterator[LocalStack]:
    """Yield the stack of a folder; start one when none runs there.

    Raises:
        ConfigError: a port that was asked for is taken.
        ServiceError: a part of it did not start.
        Interrupted: the person asked to stop.
    """
    running = stack_file.read(home)
    if running is not None:
        yield LocalStack(running.plan, lambda: None, ours=False)
        return
    with own_stack(plan_stack(home, policy=policy), flag, say) as stack:
        yield LocalStack(stack.plan, stack.check, ours=True)


@contextmanager
def own_stack(plan: StackPlan, flag: StopFlag, say: Callable[[str], None]) -> Iterator[Stack]:
    """Start a stack, make it known, and stop it at the end of the block."""
    with Stack(plan, flag, say) as stack:
        stack_file.write(plan.home, plan, stack.pids)
        try:
            yield stack
        finally:
            stack_file.remove(plan.home)
