"""What the archive knows of jobs."""

from __future__ import annotations

import json

from pydantic import JsonValue

from safactory.contracts.event import Model
from safactory.contracts.jobs import JobSpec, JobSubmitted
from safactory.contracts.rewards import SCORE_MAX
from safactory.contracts.statistics import mean_ci95
from safactory.infra.archive import Archive

ENDED = "SELECT * FROM session_events FINAL WHERE job_id = {job:String} AND type = 'session.ended'"
LAST_ENDED = f"SELECT * FROM ({ENDED}) ORDER BY attempt DESC LIMIT 1 BY session_id"
"""A resumed session ends again, with a higher attempt: the last ending counts."""


class EnvironmentResult(Model):
    """One environment's line of the result table."""

    name: str
    planned: int
    scored: int
    endings: dict[str, int]
    """Every session once; sums to planned when the job is over."""
    mean_reward: float | None
    """0–10; None when nothing was scored."""
    mean_fraction: float | None
    """0–1."""
    ci95: tuple[float, float] | None
    """Of the fraction; None for fewer than two scores."""
    prompt_tokens: int
    completion_tokens: int


class JobResults(Model):
    """The answer of `GET /v1/jobs/{id}/results`."""

    job_id: str
    ended: int
    planned: int
    attempts: int
    """Attempts of the ended sessions, summed: less than the scheduler's number means that endings are on their way."""
    environments: list[EnvironmentResult]
    causes: list[str]
    """The commonest causes of sessions without a score."""


async def job_list(archive: Archive) -> list[dict[str, JsonValue]]:
    """Return all jobs, the newest first."""
    rows = await archive.query(
        "SELECT job_id, min(occurred_at) AS submitted_at, groupUniqArray(type) AS types FROM job_events FINAL "
        "GROUP BY job_id ORDER BY submitted_at DESC LIMIT 1000"
    )
    return [
        {
            "job_id": str(row["job_id"]),
            "submitted_at": str(row["submitted_at"]),
            "state": "ended" if "job.ended" in str(row["types"]) else "open",
        }
        for row in rows
    ]


async def job_spec(archive: Archive, job_id: str) -> JobSpec | None:
    """Return a job as it was accepted; None when it is not archived."""
    rows = await archive.query(
        "SELECT body FROM job_events FINAL WHERE job_id = {job:String} AND type = 'job.submitted' LIMIT 1",
        {"job": job_id},
    )
    return JobSubmitted.from_json(str(rows[0]["body"]).encode()).spec if rows else None


async def job_results(archive: Archive, spec: JobSpec) -> JobResults:
    """Return the result table."""
    rows = await archive.query(
        "SELECT environment, count() AS ended, sum(attempt) AS attempts, "
        "countIf(scored = 1) AS n, avgIf(score, scored = 1) AS mean, "
        "if(n > 1, varSampIf(score / 10, scored = 1), 0) AS variance, "
        "sum(prompt_tokens) AS prompt, sum(completion_tokens) AS completion "
        f"FROM ({LAST_ENDED}) GROUP BY environment",
        {"job": spec.job_id},
    )
    endings = await archive.query(
        f"SELECT environment, reason, count() AS sessions FROM ({LAST_ENDED}) GROUP BY environment, reason",
        {"job": spec.job_id},
    )
    causes = await archive.query(
        f"SELECT reason, cause, count() AS sessions FROM ({LAST_ENDED}) WHERE scored = 0 "
        "GROUP BY reason, cause ORDER BY sessions DESC LIMIT 5",
        {"job": spec.job_id},
    )
    numbers = {str(row["environment"]): row for row in rows}
    return JobResults(
        job_id=spec.job_id,
        ended=sum(_int(row["ended"]) for row in rows),
        planned=spec.planned,
        attempts=sum(_int(row["attempts"]) for row in rows),
        environments=[
            _result(
                environment.name,
                environment.samples * environment.task_count,
                numbers.get(environment.name, {}),
                {str(e["reason"]): _int(e["sessions"]) for e in endings if e["environment"] == environment.name},
            )
            for environment in spec.environments
        ],
        causes=[f"{_int(row['sessions'])} × {row['reason']}: {row['cause']}" for row in causes],
    )


async def job_events(archive: Archive, job_id: str) -> list[dict[str, str]]:
    """Return a job's own events and those of its sessions that a scheduler needs to go on, in order."""
    jobs = await archive.query(
        "SELECT type, body FROM job_events FINAL WHERE job_id = {job:String} AND type = 'job.submitted'",
        {"job": job_id},
    )
    sessions = await archive.query(
        "SELECT type, body FROM session_events FINAL WHERE job_id = {job:String} "
        "AND type IN ('session.queued', 'session.ended') ORDER BY toUInt128(session_id), attempt, type DESC",
        {"job": job_id},
    )
    return [{"type": str(row["type"]), "body": str(row["body"])} for row in [*jobs, *sessions]]


async def job_sessions(archive: Archive, job_id: str, limit: int) -> list[dict[str, JsonValue]]:
    """Return a job's ended sessions, the newest first."""
    rows = await archive.query(
        "SELECT toString(session_id) AS session_id, attempt, environment, reason, cause, score, scored, last_seq, "
        f"wall_s FROM ({LAST_ENDED}) ORDER BY session_id DESC LIMIT {{limit:UInt32}}",
        {"job": job_id, "limit": limit},
    )
    return [json.loads(json.dumps(row | {"score": row["score"] if row["scored"] else None})) for row in rows]


def _result(name: str, planned: int, row: dict[str, object], endings: dict[str, int]) -> EnvironmentResult:
    scored = _int(row.get("n", 0))
    mean = float(str(row["mean"])) if scored else None
    return EnvironmentResult(
        name=name,
        planned=planned,
        scored=scored,
        endings=endings,
        mean_reward=mean,
        mean_fraction=None if mean is None else mean / SCORE_MAX,
        ci95=None if mean is None else mean_ci95(scored, mean / SCORE_MAX, float(str(row["variance"]))),
        prompt_tokens=_int(row.get("prompt", 0)),
        completion_tokens=_int(row.get("completion", 0)),
    )


def _int(value: object) -> int:
    return int(str(value))
