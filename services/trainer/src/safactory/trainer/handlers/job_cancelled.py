"""`job.cancelled`: no further group of the job is trained on."""

from __future__ import annotations

from safactory.contracts.jobs import JobCancelled
from safactory.trainer.loop import TrainingLoop


def on_job_cancelled(event: JobCancelled, loop: TrainingLoop) -> None:
    """Stop training a job; a step under way is finished."""
    loop.jobs.cancel(event.job_id)
    loop.wake()
