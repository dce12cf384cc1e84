"""`audit`: whether what the archive has of a job is complete and consistent.

Planned = sum of endings; each session's steps are 1..last_seq without a gap; the ledger has neither gap nor overlap;
no record of the job is in a dead-letter topic.
"""

from __future__ import annotations

from safactory.contracts.event import Model
from safactory.contracts.jobs import JobMode, JobSpec
from safactory.dataelf.job_queries import LAST_ENDED
from safactory.infra.archive import Archive


class Audit(Model):
    """The answer of `GET /v1/jobs/{id}/audit`."""

    job_id: str
    planned: int
    ended: int
    steps: int
    ledger_records: int
    findings: list[str]
    """Empty: nothing is missing."""


async def audit(archive: Archive, spec: JobSpec, bus: str) -> Audit:
    """Check one job, and the ledger of the bus it is on."""
    ended = await archive.query(f"SELECT count() AS sessions FROM ({LAST_ENDED})", {"job": spec.job_id})
    queued = await archive.query(
        "SELECT uniqExact(session_id) AS sessions FROM session_events FINAL "
        "WHERE job_id = {job:String} AND type = 'session.queued'",
        {"job": spec.job_id},
    )
    planned = spec.planned if spec.mode is JobMode.EVALUATE else int(str(queued[0]["sessions"]))
    found = int(str(ended[0]["sessions"]))
    findings = [f"{planned} sessions are planned, {found} have an ending"] if planned != found else []
    steps, step_findings = await _steps(archive, spec.job_id)
    records, ledger_findings = await _ledger(archive, bus)
    return Audit(
        job_id=spec.job_id,
        planned=planned,
        ended=found,
        steps=steps,
        ledger_records=records,
        findings=[*findings, *step_findings, *ledger_findings, *await _dead_letters(archive, spec.job_id)],
    )


async def _steps(archive: Archive, job_id: str) -> tuple[int, list[str]]:
    rows = await archive.query(
        f"SELECT toString(e.session_id) AS session, e.attempt AS attempt, e.last_seq AS last, "
        f"count(s.seq) AS have, max(s.seq) AS top FROM ({LAST_ENDED}) AS e LEFT JOIN "
        "(SELECT session_id, attempt, seq FROM steps FINAL WHERE job_id = {job:String}) AS s "
        "ON e.session_id = s.session_id AND e.attempt = s.attempt AND s.seq > 0 "
        "GROUP BY e.session_id, e.attempt, e.last_seq",
        {"job": job_id},
    )
    findings = []
    steps = 0
    for row in rows:
        last, top = int(str(row["last"])), int(str(row["top"]))
        have = int(str(row["have"])) if top else 0
        steps += have
        if have != last or top != last:
            findings.append(
                f"session {row['session']} attempt {row['attempt']}: {have} steps of {last} (highest {top})"
            )
    return steps, findings


async def _ledger(archive: Archive, bus: str) -> tuple[int, list[str]]:
    rows = await archive.query(
        "SELECT topic, partition, first, next, rows FROM ingest_ledger FINAL WHERE bus = {bus:String} "
        "ORDER BY topic, partition, first",
        {"bus": bus},
    )
    findings, records = [], 0
    ends: dict[tuple[str, int], int] = {}
    for row in rows:
        place = str(row["topic"]), int(str(row["partition"]))
        first, records = int(str(row["first"])), records + int(str(row["rows"]))
        if place in ends and first != ends[place]:
            kind = "gap" if first > ends[place] else "overlap"
            findings.append(f"ledger of {place[0]}/{place[1]}: {kind} between {ends[place]} and {first}")
        ends[place] = int(str(row["next"]))
    return records, findings


async def _dead_letters(archive: Archive, job_id: str) -> list[str]:
    rows = await archive.query(
        "SELECT topic, partition, offset, consumer_group, error FROM dead_letters FINAL "
        "WHERE key = {job:String} OR key IN "
        "(SELECT toString(session_id) FROM session_events WHERE job_id = {job:String})",
        {"job": job_id},
    )
    return [
        f"dead letter: {row['topic']}/{row['partition']}@{row['offset']} ({row['consumer_group']}): {row['error']}"
        for row in rows
    ]
