"""What the archive knows of a training run: its metrics, weight versions and rollouts."""

from __future__ import annotations

from pydantic import JsonValue

from safactory.infra.archive import Archive

Facts = dict[str, JsonValue]


async def run_metrics(archive: Archive, run_id: str, after_step: int) -> list[Facts]:
    """Return a run's metrics after a step, one entry a step."""
    rows = await archive.query(
        "SELECT source, step, toUnixTimestamp64Micro(min(occurred_at)) / 1e6 AS at_unix_s, "
        "groupArray(name) AS names, groupArray(value) AS numbers "
        "FROM metrics FINAL WHERE run_id = {run:String} AND step > {after:Int64} GROUP BY source, step ORDER BY step",
        {"run": run_id, "after": after_step},
    )
    return [
        {
            "source": str(row["source"]),
            "step": int(str(row["step"])),
            "at_unix_s": float(str(row["at_unix_s"])),
            "values": dict(zip(_strings(row["names"]), _floats(row["numbers"]), strict=True)),
        }
        for row in rows
    ]


async def run_weights(archive: Archive, run_id: str) -> list[Facts]:
    """Return the versions that a run published, in order."""
    rows = await archive.query(
        "SELECT concat(toString(epoch), '.', toString(step)) AS version, run_step, digest, bytes, push_s, committed, "
        "quarantined, checkpoint, toUnixTimestamp64Micro(occurred_at) / 1e6 AS at_unix_s "
        "FROM weights FINAL WHERE run_id = {run:String} ORDER BY epoch, step",
        {"run": run_id},
    )
    return [
        {
            "version": str(row["version"]),
            "step": int(str(row["run_step"])),
            "digest": str(row["digest"]),
            "bytes": int(str(row["bytes"])),
            "push_s": float(str(row["push_s"])),
            "committed": list(_strings(row["committed"])),
            "quarantined": list(_strings(row["quarantined"])),
            "checkpoint": str(row["checkpoint"]),
            "at_unix_s": float(str(row["at_unix_s"])),
        }
        for row in rows
    ]


async def run_rollouts(archive: Archive, job_id: str) -> list[Facts]:
    """Return a training job's groups by what became of them."""
    rows = await archive.query(
        "SELECT group_id, type, reason, group_size, sample_count, oldest_version, reward_mean, "
        "toUnixTimestamp64Micro(occurred_at) / 1e6 AS at_unix_s "
        "FROM rollouts FINAL WHERE job_id = {job:String} ORDER BY occurred_at",
        {"job": job_id},
    )
    return [
        {
            "group_id": str(row["group_id"]),
            "type": str(row["type"]),
            "reason": str(row["reason"]),
            "group_size": int(str(row["group_size"])),
            "sample_count": int(str(row["sample_count"])),
            "oldest_version": str(row["oldest_version"]),
            "reward_mean": float(str(row["reward_mean"])),
            "at_unix_s": float(str(row["at_unix_s"])),
        }
        for row in rows
    ]


async def time_spent(archive: Archive, job_id: str) -> Facts:
    """Return where a job's time went, in seconds summed over its sessions."""
    steps = await archive.query(
        "SELECT count() AS calls, sum(total_s) AS total, sum(upstream_s) AS upstream FROM steps FINAL "
        "WHERE job_id = {job:String}",
        {"job": job_id},
    )
    sessions = await archive.query(
        "SELECT count() AS sessions, sum(wall_s) AS wall FROM session_events FINAL "
        "WHERE job_id = {job:String} AND type = 'session.ended'",
        {"job": job_id},
    )
    rewards = await archive.query(
        "SELECT sum(wall_s) AS scoring FROM rewards FINAL WHERE job_id = {job:String}", {"job": job_id}
    )
    total, upstream = float(str(steps[0]["total"])), float(str(steps[0]["upstream"]))
    return {
        "calls": int(str(steps[0]["calls"])),
        "sessions": int(str(sessions[0]["sessions"])),
        "runner_s": float(str(sessions[0]["wall"])),
        "model_server_s": upstream,
        "gateway_s": total - upstream,
        "scoring_s": float(str(rewards[0]["scoring"])),
    }


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _floats(value: object) -> list[float]:
    return [float(str(item)) for item in value] if isinstance(value, list | tuple) else []
