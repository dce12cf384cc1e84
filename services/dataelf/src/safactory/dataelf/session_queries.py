"""What the archive knows of one session."""

from __future__ import annotations

import json

from pydantic import JsonValue

from safactory.contracts.event import Model
from safactory.contracts.messages import Message
from safactory.contracts.steps import StepStatus
from safactory.contracts.trajectory import Trajectory, TrajectoryStep
from safactory.dataelf.rows import payload_of
from safactory.infra.archive import Archive
from safactory.infra.objects import Objects
from safactory.infra.payloads import unpack

Facts = dict[str, JsonValue]


class SessionView(Model):
    """The answer of `GET /v1/sessions/{id}`."""

    session_id: str
    events: list[Facts]
    """Its life, in order: type, attempt, time, reason, cause, score."""
    rewards: list[Facts]
    gap: bool
    """Whether a record of it is in a dead-letter topic: what is shown is not all."""
    trajectory: Trajectory | None
    """Of the last attempt; None when it made no call."""


async def session_view(archive: Archive, objects: Objects, session_id: str) -> SessionView | None:
    """Return all that is known of a session; None when it is not archived."""
    events = await archive.query(
        "SELECT type, attempt, toString(occurred_at) AS at, job_id, group_id, environment, reason, cause, score, "
        "scored FROM session_events FINAL WHERE session_id = {session:UUID} ORDER BY occurred_at",
        {"session": session_id},
    )
    steps = await session_steps(archive, session_id)
    if not events and not steps:
        return None
    letters = await archive.query(
        "SELECT count() AS letters FROM dead_letters WHERE key = {session:String}", {"session": session_id}
    )
    return SessionView(
        session_id=session_id,
        events=[_plain(row) for row in events],
        rewards=await session_rewards(archive, session_id),
        gap=int(str(letters[0]["letters"])) > 0,
        trajectory=await _trajectory(archive, objects, session_id, steps),
    )


async def session_steps(archive: Archive, session_id: str) -> list[Facts]:
    """Return a session's steps, without their messages."""
    rows = await archive.query(
        "SELECT attempt, seq, toString(occurred_at) AS at, status, http_status, error, endpoint, route, model, stream, "
        "input_hashes, output_hash, parameters, weight_versions, temperature, finish_reason, prompt_tokens, "
        "completion_tokens, cached_tokens, ttft_s, total_s, upstream_s "
        "FROM steps FINAL WHERE session_id = {session:UUID} ORDER BY attempt, seq",
        {"session": session_id},
    )
    return [_plain(row) for row in rows]


async def session_rewards(archive: Archive, session_id: str) -> list[Facts]:
    """Return a session's rewards."""
    rows = await archive.query(
        "SELECT attempt, scorer, scorer_version, toString(occurred_at) AS at, score, scored, raw_score, passed, "
        "reason, error, artifacts, wall_s FROM rewards FINAL WHERE session_id = {session:UUID} "
        "ORDER BY attempt, occurred_at",
        {"session": session_id},
    )
    return [_plain(row) for row in rows]


async def _trajectory(archive: Archive, objects: Objects, session_id: str, steps: list[Facts]) -> Trajectory | None:
    if not steps:
        return None
    attempt = max(int(str(step["attempt"])) for step in steps)
    last = [step for step in steps if step["attempt"] == attempt]
    hashes = {digest for step in last for digest in (*_hashes(step), str(step["output_hash"])) if digest}
    rows = await archive.query(
        "SELECT sha256, role, body FROM messages FINAL WHERE sha256 IN {hashes:Array(String)}",
        {"hashes": sorted(hashes)},
    )
    messages = {
        _text(row["sha256"]): Message(
            sha256=_text(row["sha256"]), role=str(row["role"]), body=json.loads(str(row["body"]))
        )
        for row in rows
    }
    return Trajectory(
        session_id=session_id,
        attempt=attempt,
        steps=[await _step(objects, step, messages) for step in last],
    )


async def _step(objects: Objects, step: Facts, messages: dict[str, Message]) -> TrajectoryStep:
    parameters = payload_of(str(step["parameters"]))
    return TrajectoryStep(
        seq=int(str(step["seq"])),
        status=StepStatus(str(step["status"])),
        messages=[messages[digest] for digest in _hashes(step) if digest in messages],
        response=messages.get(str(step["output_hash"])),
        finish_reason=str(step["finish_reason"]),
        parameters=json.loads(await unpack(objects, parameters)) if parameters else {},
    )


def _hashes(step: Facts) -> list[str]:
    found = step["input_hashes"]
    return [str(digest) for digest in found] if isinstance(found, list) else []


def _plain(row: dict[str, object]) -> Facts:
    return {name: _json(value) for name, value in row.items()}


def _json(value: object) -> JsonValue:
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str | int | float) or value is None else str(value)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
