"""What a runner is given: its session's URL, its token, and its task without the ground truth. Pure."""

from __future__ import annotations

from safactory.contracts.runner import SimulationStartRequest
from safactory.contracts.sessions import SessionLeased
from safactory.infra.session_tokens import SessionClaims, sign
from safactory.scheduler.job_book import Job, Session
from safactory.scheduler.plan import without
from safactory.scheduler.settings import SchedulerSettings


def start_request(
    job: Job, session: Session, lease: SessionLeased, settings: SchedulerSettings, secret: str
) -> SimulationStartRequest:
    """Return the request of one attempt."""
    queued, spec = session.queued, job.spec
    environment = job.environment(queued.environment)
    root = settings.gateway_url.rstrip("/") + settings.base_session_path
    claims = SessionClaims(
        session_id=queued.session_id,
        attempt=queued.attempt,
        job_id=queued.job_id,
        group_id=queued.group_id,
        environment=queued.environment,
        route=spec.route,
        max_steps=spec.max_steps,
    )
    row = without(job.rows[queued.environment][queued.row], environment.hidden_fields)
    return SimulationStartRequest(
        job_id=queued.job_id,
        session_id=queued.session_id,
        agent_name=queued.environment,
        agent_id=queued.session_id,
        group_id=queued.group_id,
        gateway_base_url=root,
        session_url=f"{root}/{queued.session_id}",
        session_token=sign(claims, secret),
        model=spec.route,
        temperature=spec.temperature,
        max_steps=spec.max_steps,
        env_params={**environment.params, "dataset": row},
        agent_start_timeout_s=spec.session_timeout_s,
        metadata={
            "worker_id": lease.worker_id,
            "row_id": queued.row,
            "attempt": queued.attempt,
            "sample": queued.sample,
            "runtime": environment.launch.runtime,
        },
    )
