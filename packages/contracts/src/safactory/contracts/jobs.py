"""Jobs: what a person asks for, and the events of a job's life."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field, JsonValue

from safactory.contracts.event import Event, Model
from safactory.contracts.payload import ObjectRef
from safactory.contracts.runner import LaunchSpec


class JobMode(StrEnum):
    """What a job's sessions are for."""

    EVALUATE = "evaluate"
    """Score the agent; every session runs once."""
    TRAIN = "train"
    """Feed the trainer; groups are admitted at its pace, epoch after epoch, until `TrainingSpec.steps`."""


class SourceFile(Model):
    """A configuration file, by path, or by content when the scheduler cannot see the caller's disk."""

    path: str
    text: str | None = None
    """None: the scheduler reads `path` itself."""


class TrainingSpec(Model):
    """How a training job is paced."""

    steps: int = Field(ge=1)
    """Optimiser steps after which the job is over."""
    groups_per_step: int = Field(default=8, ge=1)
    max_staleness: int = Field(default=4, ge=0)
    """Weight versions between a rollout's oldest token and the step that trains on it."""


class JobRequest(Model):
    """The body of `POST /v1/jobs`."""

    agent_config: SourceFile
    start_config: SourceFile | None = None
    """None: `X_start.yaml` beside `X_config.yaml`."""
    agent_root: str | None = None
    """Folder of the environments' evaluators; None: the configuration's own folder or its parent."""
    mode: JobMode = JobMode.EVALUATE
    route: str = "default"
    """A key of the gateway's `llm_routes`."""
    temperature: float = Field(default=1.0, ge=0)
    samples: int | None = Field(default=None, ge=1)
    """Sessions a task (the group's size); None: each environment's `env_num`."""
    limit: int | None = Field(default=None, ge=1)
    """Tasks of each environment; None: all."""
    dataset: str | None = None
    """A file instead of the configuration's dataset."""
    max_steps: int = Field(default=-1, ge=-1)
    """Model calls a session; -1 is unlimited."""
    attempts_max: int = Field(default=3, ge=1)
    session_timeout_s: float = Field(default=600.0, gt=0)
    group_deadline_s: float = Field(default=1800.0, gt=0)
    """From a group's admission to its end: what has not ended then is cancelled."""
    training: TrainingSpec | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class EnvironmentSpec(Model):
    """One entry of the agent configuration, resolved."""

    name: str
    root: str
    """Folder that holds `rule_evaluator.py`."""
    launch: LaunchSpec
    params: dict[str, JsonValue] = Field(default_factory=dict)
    hidden_fields: tuple[str, ...] = ()
    """Dataset fields that are never given to a runner."""
    samples: int
    pass_score: float = 10.0
    """Score (0–10) from which a session counts as succeeded."""
    evaluation_timeout_s: float = 60.0
    tasks: ObjectRef
    """The dataset rows, one JSON object a line."""
    task_count: int


class JobSpec(Model):
    """A job as the scheduler accepted it: nothing in it needs the caller's disk but the runners themselves."""

    job_id: str
    mode: JobMode
    route: str
    temperature: float
    max_steps: int
    attempts_max: int
    session_timeout_s: float
    group_deadline_s: float
    environments: tuple[EnvironmentSpec, ...]
    training: TrainingSpec | None = None
    labels: dict[str, str] = Field(default_factory=dict)

    @property
    def planned(self) -> int:
        """Sessions of one pass over the dataset."""
        return sum(environment.samples * environment.task_count for environment in self.environments)


class JobSubmitted(Event):
    """A job was accepted."""

    type: ClassVar[str] = "job.submitted"
    identified_by: ClassVar[tuple[str, ...]] = ("job_id",)

    job_id: str
    spec: JobSpec


class JobResumed(Event):
    """A job goes on; sessions that have ended for good stay ended."""

    type: ClassVar[str] = "job.resumed"
    identified_by: ClassVar[tuple[str, ...]] = ("job_id", "resumption")

    job_id: str
    resumption: str
    """Unique for each resumption."""


class JobCancelled(Event):
    """A person, or the end of its training, stopped a job."""

    type: ClassVar[str] = "job.cancelled"
    identified_by: ClassVar[tuple[str, ...]] = ("job_id", "resumption")

    job_id: str
    resumption: str = ""
    reason: str


class JobEnded(Event):
    """Every planned session of a job has an ending."""

    type: ClassVar[str] = "job.ended"
    identified_by: ClassVar[tuple[str, ...]] = ("job_id", "resumption")

    job_id: str
    resumption: str = ""
    planned: int
    endings: dict[str, int]
    """Sessions by EndReason; sums to planned."""
