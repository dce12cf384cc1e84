"""`job.submitted`: a job that trains is taken up; others are not the trainer's concern."""

from __future__ import annotations

from safactory.contracts.jobs import JobMode, JobSubmitted
from safactory.trainer.loop import TrainingLoop


def on_job_submitted(event: JobSubmitted, loop: TrainingLoop) -> None:
    """Take a training job up."""
    if event.spec.mode is JobMode.TRAIN and event.spec.training is not None:
        loop.jobs.submit(event.job_id, event.spec.training)
        loop.wake()
