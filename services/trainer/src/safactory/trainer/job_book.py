"""`JobBook`: the training jobs that there are, and how far each has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safactory.contracts.jobs import TrainingSpec


@dataclass
class TrainingJob:
    """One job that trains."""

    job_id: str
    spec: TrainingSpec
    steps_done: int = 0
    cancelled: bool = False

    @property
    def over(self) -> bool:
        """Whether none of its groups will be trained on any more."""
        return self.cancelled or self.steps_done >= self.spec.steps

    @property
    def progress(self) -> float:
        """How far the next step is: 0 for the job's first, 1 for its last."""
        return min(self.steps_done / max(self.spec.steps - 1, 1), 1.0)


class JobBook:
    """Jobs in the order in which they were submitted."""

    def __init__(self, steps_done: Mapping[str, int]) -> None:
        """Begin with what a checkpoint knew: the specifications come from the bus."""
        self._steps_done = dict(steps_done)
        self._jobs: dict[str, TrainingJob] = {}

    def submit(self, job_id: str, spec: TrainingSpec) -> None:
        """Take a job up; hearing of it again changes nothing."""
        if job_id not in self._jobs:
            self._jobs[job_id] = TrainingJob(job_id, spec, self._steps_done.get(job_id, 0))

    def cancel(self, job_id: str) -> None:
        """Stop training a job; one that does not train is not known, and stays so."""
        if job_id in self._jobs:
            self._jobs[job_id].cancelled = True

    def resume(self, job_id: str) -> None:
        """Go on with a job that was cancelled."""
        if job_id in self._jobs:
            self._jobs[job_id].cancelled = False

    def active(self) -> list[TrainingJob]:
        """Return the jobs that still train."""
        return [job for job in self._jobs.values() if not job.over]

    def is_over(self, job_id: str) -> bool:
        """Whether a job is known and done with."""
        return job_id in self._jobs and self._jobs[job_id].over

    def steps_done(self) -> dict[str, int]:
        """Return the steps of every job, for a checkpoint."""
        return self._steps_done | {job.job_id: job.steps_done for job in self._jobs.values()}
