"""One table: event class → topic and key field. The bus knows no topic but these."""

from __future__ import annotations

from typing import NamedTuple

from safactory.contracts.event import Event
from safactory.contracts.jobs import JobCancelled, JobEnded, JobResumed, JobSubmitted
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.rewards import RewardScored
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.sessions import (
    SessionEnded,
    SessionFinished,
    SessionLeased,
    SessionQueued,
    SessionSealed,
)
from safactory.contracts.snapshots import SnapshotTaken
from safactory.contracts.steps import StepRecorded
from safactory.contracts.weights import WeightsPublished

DEAD_LETTERS = ".dlq"


class Topic(NamedTuple):
    """One stream of facts that are ordered per key."""

    name: str
    key: str
    """The field whose value is the record key."""
    partitions: int
    compacted: bool = False

    @property
    def dead_letters(self) -> Topic:
        """Where records go that cannot be read or handled."""
        return Topic(self.name + DEAD_LETTERS, self.key, 1)


JOB = Topic("safactory.job.v1", "job_id", 1)
SESSION = Topic("safactory.session.v1", "session_id", 6)
STEP = Topic("safactory.step.v1", "session_id", 6)
REWARD = Topic("safactory.reward.v1", "session_id", 6)
SNAPSHOT = Topic("safactory.snapshot.v1", "session_id", 6)
ROLLOUT = Topic("safactory.rollout.v1", "group_id", 6)
WEIGHTS = Topic("safactory.weights.v1", "model", 1, compacted=True)
METRIC = Topic("safactory.metric.v1", "run_id", 1)

TOPIC_OF: dict[type[Event], Topic] = {
    JobSubmitted: JOB,
    JobResumed: JOB,
    JobCancelled: JOB,
    JobEnded: JOB,
    SessionQueued: SESSION,
    SessionLeased: SESSION,
    SessionFinished: SESSION,
    SessionSealed: SESSION,
    SessionEnded: SESSION,
    StepRecorded: STEP,
    RewardScored: REWARD,
    SnapshotTaken: SNAPSHOT,
    RolloutReady: ROLLOUT,
    RolloutDropped: ROLLOUT,
    WeightsPublished: WEIGHTS,
    MetricsReported: METRIC,
}

TOPICS: tuple[Topic, ...] = tuple(dict.fromkeys(TOPIC_OF.values()))

EVENT_OF: dict[str, type[Event]] = {event.type: event for event in TOPIC_OF}
"""CloudEvents type → event class."""


def key_of(event: Event) -> str:
    """Return the record key; empty strings are kept, so that calls without a session share one order."""
    return str(getattr(event, TOPIC_OF[type(event)].key))
