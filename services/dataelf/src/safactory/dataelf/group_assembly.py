"""`GroupAssembly`: when all sessions of a group have ended, its one rollout.

It reads what it needs from the archive, so a restart loses nothing: groups that are complete and have no rollout yet
are found again there. A session that failed for infrastructure is not a sample; a group is shrunk to what is left.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from pydantic import TypeAdapter

from safactory.contracts.errors import SafactoryError
from safactory.contracts.ids import VersionSpan, WeightVersion
from safactory.contracts.jobs import JobMode
from safactory.contracts.rewards import SCORE_MAX
from safactory.contracts.rollouts import RolloutDropped, RolloutReady, RolloutSample
from safactory.contracts.sessions import SessionEnded
from safactory.contracts.steps import StepTokens
from safactory.dataelf.group_filter import drop_reason
from safactory.dataelf.rows import Source, payload_of
from safactory.dataelf.sequences import Turn, sequences
from safactory.infra.archive import Archive
from safactory.infra.bus import Bus
from safactory.infra.health import counter, gauge
from safactory.infra.objects import Objects
from safactory.infra.payloads import pack, unpack

logger = logging.getLogger(__name__)

GROUPS = counter("dataelf_groups", "Groups by what became of them", "verdict")
WAITING = gauge("dataelf_open_groups", "Groups of training jobs that are not complete")

_SPANS = TypeAdapter(list[VersionSpan])
_SAMPLES = TypeAdapter(list[RolloutSample])


class GroupAssembly:
    """The groups of training jobs that have no rollout yet."""

    def __init__(
        self, archive: Archive, objects: Objects, bus: Bus, source: Source, *, keep_equal_rewards: bool
    ) -> None:
        self._archive = archive
        self._objects = objects
        self._bus = bus
        self._source = source
        self._keep_equal_rewards = keep_equal_rewards
        self._groups: dict[str, dict[str, SessionEnded]] = {}

    async def resume(self) -> None:
        """Find the groups that a restart left without their rollout."""
        rows = await self._archive.query(
            "SELECT body FROM session_events FINAL WHERE type = 'session.ended' AND mode = 'train' "
            "AND bus = {bus:String} AND group_id NOT IN (SELECT group_id FROM rollouts)",
            {"bus": self._source.bus},
        )
        self._add([SessionEnded.from_json(str(row["body"]).encode()) for row in rows])

    async def after_flush(self, ended: list[SessionEnded]) -> None:
        """Take the sessions that are in the archive now, and emit the groups that are complete."""
        self._add(ended)
        for group_id, sessions in list(self._groups.items()):
            if len(sessions) < next(iter(sessions.values())).group_size:
                continue
            try:
                if await self._emit(group_id, list(sessions.values())):
                    del self._groups[group_id]
            except SafactoryError as error:
                logger.warning("group %s will be tried again: %s", group_id, error)
        WAITING.set(len(self._groups))

    def _add(self, ended: Sequence[SessionEnded]) -> None:
        for event in ended:
            if event.mode == JobMode.TRAIN:
                self._groups.setdefault(event.group_id, {})[event.session_id] = event

    async def _emit(self, group_id: str, ended: list[SessionEnded]) -> bool:
        """Emit one group; False while steps of it are not archived yet."""
        scored = [event for event in ended if event.score is not None]
        turns = await self._turns(scored)
        if turns is None:
            return False
        samples = [_sample(event, turns[event.session_id]) for event in scored]
        reason = drop_reason(samples, keep_equal_rewards=self._keep_equal_rewards)
        mean = sum(sample.reward for sample in samples) / len(samples) if samples else None
        first = ended[0]
        GROUPS.labels(reason or "ready").inc()
        if reason:
            await self._bus.publish(
                RolloutDropped(
                    group_id=group_id,
                    job_id=first.job_id,
                    environment=first.environment,
                    reason=reason,
                    sample_count=len(samples),
                    reward_mean=mean,
                )
            )
            return True
        await self._bus.publish(
            RolloutReady(
                group_id=group_id,
                job_id=first.job_id,
                environment=first.environment,
                group_size=first.group_size,
                sample_count=len(samples),
                oldest_version=str(_oldest(samples)),
                reward_mean=mean or 0.0,
                samples=await pack(self._objects, _SAMPLES.dump_json(samples).decode(), prefix="rollouts"),
            )
        )
        return True

    async def _turns(self, ended: list[SessionEnded]) -> dict[str, list[Turn]] | None:
        rows = await self._archive.query(
            "SELECT toString(session_id) AS session, attempt, seq, status, tokens, temperature, weight_versions "
            "FROM steps FINAL WHERE session_id IN {ids:Array(UUID)} ORDER BY session_id, attempt, seq",
            {"ids": [event.session_id for event in ended]},
        )
        found: dict[str, list[Turn]] = {}
        for event in ended:
            mine = [row for row in rows if row["session"] == event.session_id and row["attempt"] == event.attempt]
            if len(mine) < event.last_seq:
                return None
            found[event.session_id] = [await self._turn(row) for row in mine if row["status"] == "ok" and row["tokens"]]
        return found

    async def _turn(self, row: dict[str, object]) -> Turn:
        payload = payload_of(str(row["tokens"]))
        assert payload is not None, "the caller passed over rows without tokens"
        tokens = StepTokens.model_validate_json(await unpack(self._objects, payload))
        spans = _SPANS.validate_python(json.loads(str(row["weight_versions"])))
        return Turn(tokens, float(str(row["temperature"])), spans)


def _sample(event: SessionEnded, turns: list[Turn]) -> RolloutSample:
    return RolloutSample(
        session_id=event.session_id,
        attempt=event.attempt,
        reason=event.reason,
        reward=(event.score or 0.0) / SCORE_MAX,
        in_loss=event.reason.in_loss and bool(turns),
        sequences=sequences(turns),
    )


def _oldest(samples: list[RolloutSample]) -> WeightVersion:
    versions = [
        WeightVersion.parse(span.version)
        for sample in samples
        for sequence in sample.sequences
        for span in sequence.weight_versions
    ]
    return min(versions, default=WeightVersion())
