"""One builder an event: `a_session_ended(score=3.0)`. Whatever a test does not care for has a valid value."""

from __future__ import annotations

import json
from typing import Any

from safactory.contracts.endings import EndReason
from safactory.contracts.ids import VersionSpan, WeightVersion
from safactory.contracts.jobs import (
    EnvironmentSpec,
    JobCancelled,
    JobEnded,
    JobMode,
    JobResumed,
    JobSpec,
    JobSubmitted,
)
from safactory.contracts.messages import Message
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.payload import ObjectRef, Payload
from safactory.contracts.rewards import RewardScored
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.runner import LaunchSpec, RunOutcome, SimulationStartResult
from safactory.contracts.sessions import (
    SessionEnded,
    SessionFinished,
    SessionLeased,
    SessionQueued,
    SessionSealed,
)
from safactory.contracts.snapshots import SnapshotTaken
from safactory.contracts.steps import StepRecorded, StepStatus, StepTokens
from safactory.contracts.weights import WeightsPublished

SESSION = "01936f5e-8c4e-7b1a-9d2f-000000000001"
JOB = "job-1"
GROUP = "group-1"
ENVIRONMENT = "frozenlake"
DIGEST = "ab" * 32

_SESSION: dict[str, Any] = {
    "session_id": SESSION,
    "attempt": 1,
    "job_id": JOB,
    "group_id": GROUP,
    "environment": ENVIRONMENT,
}


def an_object_ref(**changes: Any) -> ObjectRef:  # noqa: ANN401
    """Return a reference to an object that need not exist."""
    return ObjectRef(**({"uri": "file:///objects/ab/x", "sha256": DIGEST, "bytes": 3} | changes))


def an_environment_spec(**changes: Any) -> EnvironmentSpec:  # noqa: ANN401
    """Return an environment of one task and one sample."""
    fields = {
        "name": ENVIRONMENT,
        "root": "/environments/frozenlake",
        "launch": LaunchSpec(command=("{python}", "runner.py"), runner_path="/environments/frozenlake/runner.py"),
        "samples": 1,
        "tasks": an_object_ref(),
        "task_count": 1,
    }
    return EnvironmentSpec(**(fields | changes))


def a_job_spec(**changes: Any) -> JobSpec:  # noqa: ANN401
    """Return a job of one environment."""
    fields = {
        "job_id": JOB,
        "mode": JobMode.EVALUATE,
        "route": "default",
        "temperature": 1.0,
        "max_steps": -1,
        "attempts_max": 3,
        "session_timeout_s": 60.0,
        "group_deadline_s": 600.0,
        "environments": (an_environment_spec(),),
    }
    return JobSpec(**(fields | changes))


def a_job_submitted(**changes: Any) -> JobSubmitted:  # noqa: ANN401
    """Return the event."""
    return JobSubmitted(**({"job_id": JOB, "spec": a_job_spec()} | changes))


def a_job_resumed(**changes: Any) -> JobResumed:  # noqa: ANN401
    """Return the event."""
    return JobResumed(**({"job_id": JOB, "resumption": "r1"} | changes))


def a_job_cancelled(**changes: Any) -> JobCancelled:  # noqa: ANN401
    """Return the event."""
    return JobCancelled(**({"job_id": JOB, "reason": "cancelled by a person"} | changes))


def a_job_ended(**changes: Any) -> JobEnded:  # noqa: ANN401
    """Return the event."""
    return JobEnded(**({"job_id": JOB, "planned": 1, "endings": {"succeeded": 1}} | changes))


def a_session_queued(**changes: Any) -> SessionQueued:  # noqa: ANN401
    """Return the event."""
    fields = _SESSION | {
        "sample": 0,
        "group_size": 1,
        "row": 0,
        "epoch": 0,
        "task": Payload(inline='{"map": ["SF", "FG"]}'),
        "evaluator_path": "/environments/frozenlake/rule_evaluator.py",
        "route": "default",
    }
    return SessionQueued(**(fields | changes))


def a_session_leased(**changes: Any) -> SessionLeased:  # noqa: ANN401
    """Return the event."""
    return SessionLeased(**(_SESSION | {"worker_id": "worker-0", "lease_id": "lease-1", "fence": 1} | changes))


def a_run_outcome(**changes: Any) -> RunOutcome:  # noqa: ANN401
    """Return a run that ended well."""
    result = SimulationStartResult(session_id=SESSION)
    return RunOutcome(**({"reason": EndReason.SUCCEEDED, "result": result, "exit_code": 0, "wall_s": 0.5} | changes))


def a_session_finished(**changes: Any) -> SessionFinished:  # noqa: ANN401
    """Return the event."""
    return SessionFinished(**(_SESSION | {"outcome": a_run_outcome()} | changes))


def a_session_sealed(**changes: Any) -> SessionSealed:  # noqa: ANN401
    """Return the event."""
    return SessionSealed(**(_SESSION | {"last_seq": 1, "prompt_tokens": 3, "completion_tokens": 1} | changes))


def a_session_ended(**changes: Any) -> SessionEnded:  # noqa: ANN401
    """Return the event."""
    fields = _SESSION | {"reason": EndReason.SUCCEEDED, "score": 10.0, "last_seq": 1, "wall_s": 0.5}
    return SessionEnded(**(fields | changes))


def a_step_recorded(**changes: Any) -> StepRecorded:  # noqa: ANN401
    """Return a call with one prompt message, one answer and three + one tokens."""
    prompt = Message.of({"role": "user", "content": "row P F"})
    answer = Message.of({"role": "assistant", "content": "down"})
    tokens = StepTokens(prompt_token_ids=[1, 2, 3], completion_token_ids=[4], logprobs=[-0.5])
    messages = [prompt.model_dump(), answer.model_dump()]
    fields = _SESSION | {
        "seq": 1,
        "status": StepStatus.OK,
        "http_status": 200,
        "endpoint": "chat.completions",
        "route": "default",
        "model": "tiny",
        "input_hashes": [prompt.sha256],
        "output_hash": answer.sha256,
        "messages": Payload(inline=json.dumps(messages)),
        "parameters": Payload(inline='{"max_tokens": 1}'),
        "tokens": Payload(inline=tokens.model_dump_json()),
        "weight_versions": [VersionSpan(version="0.0", start=0, end=1)],
        "finish_reason": "stop",
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "total_s": 0.1,
    }
    return StepRecorded(**(fields | changes))


def a_reward_scored(**changes: Any) -> RewardScored:  # noqa: ANN401
    """Return the event."""
    fields = _SESSION | {"scorer": "rule", "scorer_version": DIGEST, "score": 10.0, "raw_score": 10.0, "passed": True}
    return RewardScored(**(fields | changes))


def a_snapshot_taken(**changes: Any) -> SnapshotTaken:  # noqa: ANN401
    """Return the event."""
    fields = {
        "session_id": SESSION,
        "attempt": 1,
        "job_id": JOB,
        "kind": "workdir",
        "sha256": DIGEST,
        "files": 2,
        "object": an_object_ref(),
    }
    return SnapshotTaken(**(fields | changes))


def a_rollout_ready(**changes: Any) -> RolloutReady:  # noqa: ANN401
    """Return a group without samples."""
    fields = {
        "group_id": GROUP,
        "job_id": JOB,
        "environment": ENVIRONMENT,
        "group_size": 2,
        "sample_count": 2,
        "oldest_version": "0.0",
        "reward_mean": 0.5,
        "samples": Payload(inline="[]"),
    }
    return RolloutReady(**(fields | changes))


def a_rollout_dropped(**changes: Any) -> RolloutDropped:  # noqa: ANN401
    """Return the event."""
    fields = {
        "group_id": GROUP,
        "job_id": JOB,
        "environment": ENVIRONMENT,
        "reason": "equal_rewards",
        "sample_count": 2,
        "reward_mean": 0.0,
    }
    return RolloutDropped(**(fields | changes))


def a_weights_published(**changes: Any) -> WeightsPublished:  # noqa: ANN401
    """Return the event."""
    fields = {
        "model": "tiny",
        "version": WeightVersion(epoch=0, step=1),
        "run_id": JOB,
        "digest": DIGEST,
        "step": 1,
        "bytes": 4,
        "push_s": 0.1,
        "committed": ["127.0.0.1:1"],
        "quarantined": [],
    }
    return WeightsPublished(**(fields | changes))


def a_metrics_reported(**changes: Any) -> MetricsReported:  # noqa: ANN401
    """Return the event."""
    return MetricsReported(**({"run_id": JOB, "source": "trainer", "step": 1, "values": {"loss": 0.5}} | changes))
