"""`JobBook`: all that the scheduler knows, as a fold over events.

Nothing changes here but through `apply`, and every event can be applied again: after a restart the book is the same
fold over the bus.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import JsonValue

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event
from safactory.contracts.jobs import (
    EnvironmentSpec,
    JobCancelled,
    JobEnded,
    JobMode,
    JobResumed,
    JobSpec,
    JobSubmitted,
)
from safactory.contracts.rewards import RewardScored
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.runner import RunOutcome
from safactory.contracts.sessions import (
    SessionEnded,
    SessionFinished,
    SessionLeased,
    SessionQueued,
    SessionSealed,
)
from safactory.contracts.weights import WeightsPublished
from safactory.scheduler.plan import PlannedGroup, groups

Row = dict[str, JsonValue]


class Phase(StrEnum):
    """Where an attempt stands."""

    QUEUED = "queued"
    LEASED = "running"
    FINISHED = "sealing"
    SEALED = "scoring"
    ENDED = "ended"


@dataclass(slots=True)
class Session:
    """One session, at its newest attempt."""

    queued: SessionQueued
    phase: Phase = Phase.QUEUED
    lease: SessionLeased | None = None
    outcome: RunOutcome | None = None
    sealed: SessionSealed | None = None
    ended: SessionEnded | None = None
    reward: RewardScored | None = None
    score_by_s: float = 0.0
    """When the wait for a score is over, in monotonic seconds."""

    @property
    def session_id(self) -> str:
        """Its id."""
        return self.queued.session_id


@dataclass(slots=True)
class Group:
    """One task's samples."""

    planned: PlannedGroup
    sessions: list[str] = field(default_factory=list)
    started_s: float | None = None
    """When its first session was leased, in monotonic seconds."""
    overdue: bool = False
    """Whether its deadline has passed: nothing in it is tried again."""
    verdict: str = ""
    """`ready` or `dropped`, once dataelf has said so."""


@dataclass(slots=True)
class Job:
    """One job."""

    spec: JobSpec
    submitted_s: float = field(default_factory=time.time)
    sessions: dict[str, Session] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    queue: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Sessions that wait for a worker, each once, in order."""
    phases: Counter[Phase] = field(default_factory=Counter)
    endings: Counter[EndReason] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Dataset rows by environment, read from the object store; empty until then."""
    plan: Iterator[PlannedGroup] = field(default_factory=lambda: iter(()))
    next_group: PlannedGroup | None = None
    steps_done: int = 0
    """Optimiser steps, from the weights that were published."""
    cancelled: str = ""
    """Why, when it was."""
    ended: JobEnded | None = None
    resumption: str = ""
    admitting: bool = True
    attempts_ended: int = 0
    """Summed over the sessions that have an ending."""
    retried: int = 0
    retry_cause: str = ""
    score_sum: float = 0.0
    scored: int = 0

    def __post_init__(self) -> None:
        self.plan = groups(self.spec)
        self.next_group = next(self.plan, None)

    def environment(self, name: str) -> EnvironmentSpec:
        """Return an environment by its name."""
        return next(environment for environment in self.spec.environments if environment.name == name)

    @property
    def open(self) -> int:
        """Sessions without an ending."""
        return len(self.sessions) - self.phases[Phase.ENDED]

    @property
    def planned(self) -> int:
        """Sessions that must have an ending: all of one pass, or, in training, those admitted."""
        return self.spec.planned if self.spec.mode is JobMode.EVALUATE and not self.cancelled else len(self.sessions)

    @property
    def useful_groups(self) -> int:
        """Groups that were admitted and not dropped: those the trainer has had or may still get."""
        return len(self.groups) - self.verdicts["dropped"]


class JobBook:
    """All jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.fence = 0
        """The highest lease number ever given."""

    def session(self, session_id: str) -> tuple[Job, Session] | None:
        """Return a session with its job; None when it is not known."""
        for job in self.jobs.values():
            session = job.sessions.get(session_id)
            if session is not None:
                return job, session
        return None

    def apply(self, event: Event) -> None:
        """Fold one event in; an event of an unknown job, or of an older attempt, changes nothing."""
        if isinstance(event, JobSubmitted):
            self.jobs.setdefault(event.job_id, Job(event.spec, submitted_s=event.occurred_at.timestamp()))
            return
        if isinstance(event, WeightsPublished):
            job = self.jobs.get(event.run_id)
            if job is not None:
                job.steps_done = max(job.steps_done, event.step)
            return
        job = self.jobs.get(getattr(event, "job_id", ""))
        if job is None:
            return
        if isinstance(event, SessionQueued):
            _queue(job, event)
        elif isinstance(event, JobCancelled | JobEnded | JobResumed):
            _job_event(job, event)
        elif isinstance(event, RolloutReady | RolloutDropped):
            _verdict(job, event)
        else:
            self._session_event(job, event)

    def _session_event(self, job: Job, event: Event) -> None:
        session = job.sessions.get(getattr(event, "session_id", ""))
        if session is None or getattr(event, "attempt", 0) != session.queued.attempt:
            return
        if isinstance(event, SessionLeased):
            self.fence = max(self.fence, event.fence)
            session.lease = event
            _move(job, session, Phase.LEASED)
            group = job.groups[session.queued.group_id]
            group.started_s = group.started_s or time.monotonic()
        elif isinstance(event, SessionFinished):
            session.outcome = event.outcome
            _move(job, session, Phase.FINISHED)
        elif isinstance(event, SessionSealed):
            session.sealed = event
            _move(job, session, Phase.SEALED)
        elif isinstance(event, RewardScored):
            session.reward = event
        elif isinstance(event, SessionEnded) and session.ended is None:
            session.ended = event
            _move(job, session, Phase.ENDED)
            job.endings[event.reason] += 1
            job.attempts_ended += event.attempt
            if event.score is not None:
                job.score_sum, job.scored = job.score_sum + event.score, job.scored + 1


def _queue(job: Job, event: SessionQueued) -> None:
    session = job.sessions.get(event.session_id)
    if session is None:
        job.sessions[event.session_id] = Session(event)
        job.phases[Phase.QUEUED] += 1
        _adopt(job, event)
    elif event.attempt > session.queued.attempt:
        _forget_attempt(job, session)
        job.phases[session.phase] -= 1
        job.phases[Phase.QUEUED] += 1
        job.sessions[event.session_id] = Session(event)
    else:
        return
    job.queue[event.session_id] = None


def _forget_attempt(job: Job, session: Session) -> None:
    if session.ended is None:
        job.retried += 1
        error = session.sealed.last_error if session.sealed else None
        job.retry_cause = error.message if error else session.outcome.cause if session.outcome else ""
        return
    job.endings[session.ended.reason] -= 1
    job.attempts_ended -= session.ended.attempt
    if session.ended.score is not None:
        job.score_sum, job.scored = job.score_sum - session.ended.score, job.scored - 1


def _adopt(job: Job, event: SessionQueued) -> None:
    group = job.groups.get(event.group_id)
    if group is None:
        index = next(i for i, e in enumerate(job.spec.environments) if e.name == event.environment)
        planned = PlannedGroup(event.group_id, index, event.row, event.epoch, event.group_size)
        group = job.groups[event.group_id] = Group(planned)
    group.sessions.append(event.session_id)
    # The plan stands behind the last group that has all its sessions; a half-queued one is completed after a restart.
    while job.next_group is not None and job.next_group.group_id in job.groups:
        if len(job.groups[job.next_group.group_id].sessions) < job.next_group.size:
            break
        job.next_group = next(job.plan, None)


def _move(job: Job, session: Session, phase: Phase) -> None:
    if list(Phase).index(phase) <= list(Phase).index(session.phase):
        return
    job.phases[session.phase] -= 1
    job.phases[phase] += 1
    session.phase = phase
    job.queue.pop(session.session_id, None)


def _job_event(job: Job, event: JobCancelled | JobEnded | JobResumed) -> None:
    if not isinstance(event, JobResumed) and event.resumption != job.resumption:
        return
    if isinstance(event, JobCancelled):
        job.cancelled, job.admitting = event.reason, False
    elif isinstance(event, JobEnded):
        job.ended, job.admitting = event, False
    else:
        job.cancelled, job.ended, job.admitting, job.resumption = "", None, True, event.resumption
        for group in job.groups.values():
            group.started_s, group.overdue = None, False


def _verdict(job: Job, event: RolloutReady | RolloutDropped) -> None:
    group = job.groups.get(event.group_id)
    if group is None:
        return
    # A group may be found worth training on and be dropped later, as too old.
    verdict = "ready" if isinstance(event, RolloutReady) else "dropped"
    if group.verdict == verdict or group.verdict == "dropped":
        return
    if group.verdict:
        job.verdicts[group.verdict] -= 1
    group.verdict = verdict
    job.verdicts[verdict] += 1


def missing_samples(group: Group | None, planned: PlannedGroup, job: Job) -> list[int]:
    """Return the sample numbers of a planned group that are not queued yet."""
    have = {job.sessions[session_id].queued.sample for session_id in group.sessions} if group else set()
    return [sample for sample in itertools.islice(itertools.count(), planned.size) if sample not in have]
