"""`job.resumed`: a job that was cancelled goes on from the step that it had reached."""

from __future__ import annotations

from safactory.contracts.jobs import JobResumed
from safactory.trainer.loop import TrainingLoop


def on_job_resumed(event: JobResumed, loop: TrainingLoop) -> None:
    """Go on training a job."""
    loop.jobs.resume(event.job_id)
    loop.wake()
