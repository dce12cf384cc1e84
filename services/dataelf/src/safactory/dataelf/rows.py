"""Events → rows of the archive's tables. Pure; one function an event class, found by `rows_of`."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from safactory.contracts.dead_letters import DeadLetter
from safactory.contracts.errors import PoisonError
from safactory.contracts.event import Event
from safactory.contracts.jobs import JobCancelled, JobEnded, JobResumed, JobSubmitted
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.payload import Payload
from safactory.contracts.rewards import RewardScored
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.sessions import SessionEnded, SessionEvent, SessionFinished
from safactory.contracts.snapshots import SnapshotTaken
from safactory.contracts.steps import StepRecorded
from safactory.contracts.weights import WeightsPublished

Row = dict[str, object]


class Source(NamedTuple):
    """Where rows belong."""

    tenant: str
    bus: str


def rows_of(event: Event, source: Source) -> Mapping[str, list[Row]]:
    """Return an event's rows by table.

    Raises:
        PoisonError: an identity has another form than the table needs.
    """
    try:
        return _rows(event, source)
    except ValueError as error:
        raise PoisonError(f"{event.type} cannot be archived: {error}") from error


def _head(event: Event, source: Source) -> Row:
    return {"tenant": source.tenant, "event_id": uuid.UUID(event.event_id)}


@functools.singledispatch
def _rows(event: Event, source: Source) -> Mapping[str, list[Row]]:
    raise ValueError("no table for this event")


@_rows.register(JobSubmitted)
@_rows.register(JobResumed)
@_rows.register(JobCancelled)
@_rows.register(JobEnded)
def _job(event: JobSubmitted | JobResumed | JobCancelled | JobEnded, source: Source) -> Mapping[str, list[Row]]:
    row = _head(event, source) | {
        "job_id": event.job_id,
        "type": event.type,
        "occurred_at": event.occurred_at,
        "body": event.to_json().decode(),
    }
    return {"job_events": [row]}


@_rows.register
def _session(event: SessionEvent, source: Source) -> Mapping[str, list[Row]]:
    ended = event if isinstance(event, SessionEnded) else None
    finished = event.outcome if isinstance(event, SessionFinished) else None
    reason = ended.reason.value if ended else finished.reason.value if finished else ""
    row = _head(event, source) | {
        "session_id": uuid.UUID(event.session_id),
        "attempt": event.attempt,
        "type": event.type,
        "job_id": event.job_id,
        "group_id": event.group_id,
        "environment": event.environment,
        "occurred_at": event.occurred_at,
        "mode": ended.mode if ended else "",
        "reason": reason,
        "cause": ended.cause if ended else finished.cause if finished else "",
        "score": (ended.score or 0.0) if ended else 0.0,
        "scored": int(ended is not None and ended.score is not None),
        "last_seq": ended.last_seq if ended else 0,
        "prompt_tokens": ended.prompt_tokens if ended else 0,
        "completion_tokens": ended.completion_tokens if ended else 0,
        "wall_s": ended.wall_s if ended else finished.wall_s if finished else 0.0,
        "group_size": ended.group_size if ended else 0,
        "bus": source.bus,
        "body": event.to_json().decode(),
    }
    return {"session_events": [row]}


@_rows.register
def _step(event: StepRecorded, source: Source) -> Mapping[str, list[Row]]:
    row = _head(event, source) | {
        "session_id": uuid.UUID(event.session_id),
        **event.model_dump(
            include={
                "attempt",
                "seq",
                "job_id",
                "group_id",
                "environment",
                "occurred_at",
                "http_status",
                "error",
                "endpoint",
                "route",
                "model",
                "upstream",
                "input_hashes",
                "output_hash",
                "temperature",
                "finish_reason",
                "prompt_tokens",
                "completion_tokens",
                "cached_tokens",
                "total_s",
                "upstream_s",
            }
        ),
        "status": event.status.value,
        "stream": int(event.stream),
        "parameters": event.parameters.model_dump_json(),
        "tokens": event.tokens.model_dump_json() if event.tokens else "",
        "weight_versions": json.dumps([span.model_dump() for span in event.weight_versions]),
        "ttft_s": -1.0 if event.ttft_s is None else event.ttft_s,
    }
    return {"steps": [row]}


@_rows.register
def _reward(event: RewardScored, source: Source) -> Mapping[str, list[Row]]:
    row = _head(event, source) | {
        "session_id": uuid.UUID(event.session_id),
        **event.model_dump(
            include={
                "attempt",
                "scorer",
                "scorer_version",
                "job_id",
                "group_id",
                "environment",
                "occurred_at",
                "reason",
                "error",
                "wall_s",
            }
        ),
        "score": event.score or 0.0,
        "scored": int(event.score is not None),
        "raw_score": event.raw_score or 0.0,
        "passed": int(event.passed),
        "artifacts": json.dumps(event.artifacts),
    }
    return {"rewards": [row]}


@_rows.register
def _snapshot(event: SnapshotTaken, source: Source) -> Mapping[str, list[Row]]:
    row = _head(event, source) | {
        "session_id": uuid.UUID(event.session_id),
        **event.model_dump(include={"attempt", "kind", "sha256", "job_id", "occurred_at", "parent", "files"}),
        "uri": event.object.uri,
        "bytes": event.object.bytes,
    }
    return {"snapshots": [row]}


@_rows.register(RolloutReady)
@_rows.register(RolloutDropped)
def _rollout(event: RolloutReady | RolloutDropped, source: Source) -> Mapping[str, list[Row]]:
    ready = event if isinstance(event, RolloutReady) else None
    row = _head(event, source) | {
        "group_id": event.group_id,
        "type": event.type,
        "job_id": event.job_id,
        "environment": event.environment,
        "occurred_at": event.occurred_at,
        "reason": "" if isinstance(event, RolloutReady) else event.reason,
        "group_size": ready.group_size if ready else 0,
        "sample_count": event.sample_count,
        "oldest_version": ready.oldest_version if ready else "",
        "reward_mean": event.reward_mean or 0.0,
    }
    return {"rollouts": [row]}


@_rows.register
def _weights(event: WeightsPublished, source: Source) -> Mapping[str, list[Row]]:
    row = _head(event, source) | {
        **event.model_dump(
            include={
                "run_id",
                "model",
                "occurred_at",
                "digest",
                "bytes",
                "push_s",
                "committed",
                "quarantined",
                "checkpoint",
            }
        ),
        "epoch": event.version.epoch,
        "step": event.version.step,
        "run_step": event.step,
    }
    return {"weights": [row]}


@_rows.register
def _metrics(event: MetricsReported, source: Source) -> Mapping[str, list[Row]]:
    head = _head(event, source) | event.model_dump(include={"run_id", "source", "step", "occurred_at"})
    return {"metrics": [head | {"name": name, "value": value} for name, value in event.values.items()]}


@_rows.register
def _dead_letter(event: DeadLetter, source: Source) -> Mapping[str, list[Row]]:
    row = _head(event, source) | {
        **event.model_dump(include={"topic", "partition", "offset", "key", "kind", "error", "attempts", "value"}),
        "partition": max(0, event.partition),
        "offset": max(0, event.offset),
        "consumer_group": event.group,
        "bus": source.bus,
    }
    return {"dead_letters": [row]}


def message_rows(text: str, source: Source) -> list[Row]:
    """Return the rows of a step's unsent messages.

    Raises:
        PoisonError: the payload is not a list of messages.
    """
    try:
        return [
            {
                "tenant": source.tenant,
                "sha256": message["sha256"],
                "role": message["role"],
                "body": json.dumps(message["body"], ensure_ascii=False),
            }
            for message in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise PoisonError(f"the messages of a step are not a list of messages: {error}") from error


def payload_of(text: str) -> Payload | None:
    """Read a payload column; None for an empty one."""
    return Payload.model_validate_json(text) if text else None
