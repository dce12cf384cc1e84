"""`GroupQueue`: complete groups that wait to be trained on.

Whole groups go in and out, oldest weights first. Guarantees: a group is taken at most once, and one that was
consumed before, in this process or before the checkpoint it resumed from, is not taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from safactory.contracts.ids import WeightVersion
from safactory.contracts.rollouts import RolloutReady
from safactory.trainer.staleness import is_trainable

CONSUMED_MAX = 100_000
"""How many consumed groups are remembered; a duplicate can only come from the recent past."""


@dataclass(frozen=True)
class QueuedGroup:
    """One group and its place on the bus."""

    rollout: RolloutReady
    release: Callable[[], None]
    """Says that the group needs no further work, whatever became of it."""
    oldest: WeightVersion = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "oldest", WeightVersion.parse(self.rollout.oldest_version))


class GroupQueue:
    """The groups of all jobs."""

    def __init__(self, consumed: Iterable[str] = ()) -> None:
        self._waiting: dict[str, dict[str, QueuedGroup]] = {}
        self._consumed: dict[str, None] = dict.fromkeys(consumed)

    @property
    def consumed(self) -> list[str]:
        """Ids of the groups that were taken or dropped, oldest first."""
        return list(self._consumed)

    def waiting(self, job_id: str) -> int:
        """How many groups of a job wait."""
        return len(self._waiting.get(job_id, {}))

    def job_ids(self) -> list[str]:
        """Return the jobs of which groups wait."""
        return [job_id for job_id, groups in self._waiting.items() if groups]

    def add(self, group: QueuedGroup) -> bool:
        """Let a group wait; False when it is known already."""
        job = self._waiting.setdefault(group.rollout.job_id, {})
        group_id = group.rollout.group_id
        if group_id in self._consumed or group_id in job:
            return False
        job[group_id] = group
        return True

    def trainable(self, job_id: str, current: WeightVersion, bound: int) -> list[QueuedGroup]:
        """Return the groups that may be trained on now, oldest weights first; they go on waiting until `remove`."""
        groups = self._waiting.get(job_id, {}).values()
        # sorted() keeps the order of arrival among equals.
        return sorted((g for g in groups if is_trainable(g.oldest, current, bound)), key=lambda group: group.oldest)

    def unfit(self, job_id: str, current: WeightVersion, bound: int) -> list[QueuedGroup]:
        """Return the groups that are too old, or claim to be newer than the trainer."""
        groups = self._waiting.get(job_id, {}).values()
        return [group for group in groups if not is_trainable(group.oldest, current, bound)]

    def of_job(self, job_id: str) -> list[QueuedGroup]:
        """Return every group of a job that waits."""
        return list(self._waiting.get(job_id, {}).values())

    def remove(self, groups: Iterable[QueuedGroup]) -> None:
        """Consume groups: they were trained on, or never will be."""
        for group in groups:
            self._waiting[group.rollout.job_id].pop(group.rollout.group_id)
            self._consumed[group.rollout.group_id] = None
            group.release()
        while len(self._consumed) > CONSUMED_MAX:
            self._consumed.pop(next(iter(self._consumed)))
