"""`plan`: a job's environments and rows → groups, in the order in which they are admitted. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import JsonValue

from safactory.contracts.ids import group_id_of
from safactory.contracts.jobs import JobMode, JobSpec


class PlannedGroup(NamedTuple):
    """One task × its samples."""

    group_id: str
    environment_index: int
    row: int
    epoch: int
    size: int


def groups(spec: JobSpec) -> Iterator[PlannedGroup]:
    """Yield a job's groups: one pass over the dataset to evaluate, passes without end to train.

    Environments take turns, so that a job of several is balanced at every moment.
    """
    rows = range(max(environment.task_count for environment in spec.environments))
    epochs = range(1) if spec.mode is JobMode.EVALUATE else itertools.count()
    for epoch, row, (index, environment) in (
        (epoch, row, entry) for epoch in epochs for row in rows for entry in enumerate(spec.environments)
    ):
        if row < environment.task_count:
            group_id = group_id_of(spec.job_id, index, environment.tasks.sha256, row, epoch)
            yield PlannedGroup(group_id, index, row, epoch, environment.samples)


def without(row: dict[str, JsonValue], hidden: tuple[str, ...]) -> dict[str, JsonValue]:
    """Return a row without its ground truth."""
    return {name: value for name, value in row.items() if name not in hidden}


def admissible(steps_done: int, groups_per_step: int, max_staleness: int) -> int:
    """Return how many useful groups may have been admitted by now.

    Those of the steps that are done, of the step in hand, and of `max_staleness` steps ahead: a group admitted within
    this bound is at most `max_staleness` versions old when its turn comes. Rollouts are paced, not thrown away.
    """
    return (steps_done + 1 + max_staleness) * groups_per_step
