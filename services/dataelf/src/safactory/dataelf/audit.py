"""`audit`: whether what the archive has of a job is complete and consistent.

Planned = sum of endings, each of its session's newest attempt; each session's steps are 1..last_seq without a gap; the
ledger of every bus that the job was on has neither gap nor overlap, and as many records as it spans; no record of the
job is in a dead-letter topic.
"""

from __future__ import annotations

from safactory.contracts.event import Model
from safactory.contracts.jobs import JobMode, JobSpec
from safactory.contracts.topics import TOPICS
from safactory.dataelf.job_queries import LAST_ENDED
from safactory.infra.archive import Archive

Place = tuple[str, str, int]
"""Bus, topic, partition."""
COMPACTED = frozenset(topic.name for topic in TOPICS if topic.compacted)
"""Topics in whose offsets a broker makes gaps."""


class Audit(Model):
    """The answer of `GET /v1/jobs/{id}/audit`."""

    job_id: str
    planned: int
    ended: int
    steps: int
    ledger_records: int
    findings: list[str]
    """Empty: nothing is missing."""


async def audit(archive: Archive, spec: JobSpec) -> Audit:
    """Check one job, and the ledgers of the buses it was on."""
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
    records, ledger_findings = await _ledger(archive, spec.job_id)
    return Audit(
        job_id=spec.job_id,
        planned=planned,
        ended=found,
        steps=steps,
        ledger_records=records,
        findings=[
            *findings,
            *await _open_attempts(archive, spec.job_id),
            *step_findings,
            *ledger_findings,
            *await _dead_letters(archive, spec.job_id),
        ],
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


async def _open_attempts(archive: Archive, job_id: str) -> list[str]:
    """Name the sessions whose newest attempt was queued and has no ending, though an older one may have."""
    rows = await archive.query(
        "SELECT toString(session_id) AS session, maxIf(attempt, type = 'session.queued') AS queued, "
        "maxIf(attempt, type = 'session.ended') AS ended FROM session_events FINAL WHERE job_id = {job:String} "
        "GROUP BY session_id HAVING queued > ended AND ended > 0",
        {"job": job_id},
    )
    return [f"session {row['session']}: attempt {row['queued']} was queued and has no ending" for row in rows]


async def _ledger(archive: Archive, job_id: str) -> tuple[int, list[str]]:
    rows = await archive.query(
        "SELECT bus, topic, partition, first, next, rows FROM ingest_ledger FINAL WHERE bus IN "
        "(SELECT DISTINCT bus FROM session_events WHERE job_id = {job:String}) ORDER BY bus, topic, partition, first",
        {"job": job_id},
    )
    buried = await _buried(archive)
    findings, records = [], 0
    ends: dict[Place, int] = {}
    for row in rows:
        place = str(row["bus"]), str(row["topic"]), int(str(row["partition"]))
        first, end, found = int(str(row["first"])), int(str(row["next"])), int(str(row["rows"]))
        records += found
        if place in ends and first != ends[place]:
            kind = "gap" if first > ends[place] else "overlap"
            findings.append(f"ledger of {place[1]}/{place[2]}: {kind} between {ends[place]} and {first}")
        ends[place] = end
        missing = end - first - found - sum(first <= offset < end for offset in buried.get(place, ()))
        if missing > 0 and place[1] not in COMPACTED:
            findings.append(f"ledger of {place[1]}/{place[2]}: {missing} records from {first} to {end - 1} never came")
    return records, findings


async def _buried(archive: Archive) -> dict[Place, list[int]]:
    """Return the places of the records that dataelf itself could not take."""
    rows = await archive.query(
        "SELECT bus, topic, partition, offset FROM dead_letters FINAL WHERE endsWith(consumer_group, 'dataelf')"
    )
    places: dict[Place, list[int]] = {}
    for row in rows:
        place = str(row["bus"]), str(row["topic"]), int(str(row["partition"]))
        places.setdefault(place, []).append(int(str(row["offset"])))
    return places


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
