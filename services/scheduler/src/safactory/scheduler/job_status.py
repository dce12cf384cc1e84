"""What a person is told of a job while it goes on."""

from __future__ import annotations

from pydantic import JsonValue

from safactory.contracts.event import Model
from safactory.contracts.jobs import JobMode
from safactory.scheduler.job_book import Job, Phase
from safactory.scheduler.lease_book import LeaseBook


class JobStatus(Model):
    """The answer of `GET /v1/jobs/{id}`."""

    job_id: str
    mode: JobMode
    state: str
    """`running`, `cancelling`, `ended`."""
    cause: str
    """Why it was cancelled."""
    planned: int
    """Sessions that must end; in training, those admitted so far."""
    environments: dict[str, int]
    """Sessions of one pass over the dataset, by environment."""
    queued: int
    running: int
    scoring: int
    """Sessions whose runner has ended and that have no ending yet."""
    ended: dict[str, int]
    """Sessions by EndReason."""
    attempts: int
    """Attempts of the sessions that have an ending: tells whether an archive has the newest of each."""
    retried: int
    """Attempts that failed and were followed by another."""
    retry_cause: str
    """Why, the last time."""
    scored: int
    mean_score: float | None
    """0–10, of all scored sessions so far."""
    groups: dict[str, int]
    """`admitted`, `ready`, `dropped`."""
    steps_done: int
    steps_wanted: int
    slots: int
    """Sessions that the workers can run at once."""
    busy_s: float
    """Slot-seconds in use since the scheduler's start."""
    capacity_s: float
    submitted_unix_s: float


def status_of(job: Job, leases: LeaseBook) -> JobStatus:
    """Return a job's state now."""
    leases.account()
    state = "ended" if job.ended else "cancelling" if job.cancelled else "running"
    training = job.spec.training
    return JobStatus(
        job_id=job.spec.job_id,
        mode=job.spec.mode,
        state=state,
        cause=job.cancelled,
        planned=job.planned,
        environments={one.name: one.samples * one.task_count for one in job.spec.environments},
        queued=job.phases[Phase.QUEUED],
        running=job.phases[Phase.LEASED],
        scoring=job.phases[Phase.FINISHED] + job.phases[Phase.SEALED],
        ended={reason.value: count for reason, count in job.endings.items() if count},
        attempts=job.attempts_ended,
        retried=job.retried,
        retry_cause=job.retry_cause,
        scored=job.scored,
        mean_score=job.score_sum / job.scored if job.scored else None,
        groups={"admitted": len(job.groups), "ready": job.verdicts["ready"], "dropped": job.verdicts["dropped"]},
        steps_done=job.steps_done,
        steps_wanted=training.steps if training else 0,
        slots=leases.slots,
        busy_s=leases.busy_s,
        capacity_s=leases.capacity_s,
        submitted_unix_s=job.submitted_s,
    )


def facts(leases: LeaseBook, jobs: int) -> dict[str, JsonValue]:
    """Return what /readyz tells beside its verdict."""
    return {"workers": len(leases.workers), "slots": leases.slots, "jobs": jobs}
