"""`Publisher`: makes the current weights a version that is served.

Pushes to the model servers and then says so on the bus. Guarantees: `weights.published` follows a verified commit and
never precedes one; while no server takes a version, training waits, since what it would train on is getting older.
"""

from __future__ import annotations

import asyncio
import logging

from safactory.contracts.errors import WeightsError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.weights import WeightsPublished
from safactory.infra.bus import Bus
from safactory.infra.health import counter
from safactory.trainer.policy import Policy
from safactory.trainer.settings import TrainerSettings
from safactory.trainer.weight_update import WeightUpdate
from safactory.trainer.weights_push import PushOutcome, Serving, WeightsPush

logger = logging.getLogger(__name__)

PUBLISHED = counter("trainer_weights_published", "Weight versions that at least one model server committed")
FAILED = counter("trainer_weights_failed", "Tries to push a version that no model server took")


class Publisher:
    """The way from the trainer's weights to the model servers and the bus."""

    def __init__(self, settings: TrainerSettings, push: WeightsPush, bus: Bus) -> None:
        self._settings = settings
        self._push = push
        self._bus = bus
        self.failure = ""
        """Why the last try failed; empty when it did not."""

    async def publish(self, policy: Policy, version: WeightVersion, run: tuple[str, int], checkpoint: str) -> float:
        """Push a version, try again until a server takes it, and return the seconds that the push took.

        `run` is the job and its steps so far.
        """
        update = WeightUpdate(self._settings.model_name, version, policy.tensors())
        outcome = await self._until_committed(update)
        await self._announce(update, outcome, run, checkpoint)
        return outcome.push_s

    async def agree(self, policy: Policy, version: WeightVersion, run: tuple[str, int]) -> WeightVersion:
        """At start: see to it that what is served is what is trained, and return the version that it has.

        A server that serves the same weights is left alone. When one serves others, or a version beyond the one
        resumed from, the trainer goes on in a new epoch, so that no two weights ever share a version.
        """
        update = WeightUpdate(self._settings.model_name, version, policy.tensors())
        served = await self._until_answered()
        latest = max((each.version for each in served.values()), default=version)
        if all(each.digest == update.digest for each in served.values()):
            version = max(version, latest)
            if served and run[0]:
                # The process may have died between the push of this version and its announcement.
                update = WeightUpdate(self._settings.model_name, version, policy.tensors())
                await self._announce(update, PushOutcome(list(served), [], 0.0), run, "")
            return version
        if not latest < version:
            version = WeightVersion(epoch=latest.epoch + 1, step=version.step)
        await self.publish(policy, version, run, "")
        return version

    async def _announce(
        self, update: WeightUpdate, outcome: PushOutcome, run: tuple[str, int], checkpoint: str
    ) -> None:
        job_id, step = run
        await self._bus.publish(
            WeightsPublished(
                model=self._settings.model_name,
                version=update.version,
                run_id=job_id,
                digest=update.digest,
                step=step,
                bytes=update.size_bytes,
                push_s=outcome.push_s,
                committed=outcome.committed,
                quarantined=outcome.quarantined,
                checkpoint=checkpoint,
            )
        )
        PUBLISHED.inc()

    async def _until_answered(self) -> dict[str, Serving]:
        """Return what the servers serve, once one of them answers: before that, nothing can be sampled either."""
        while True:
            served = await self._push.serving()
            if served or not self._push.addresses:
                self.failure = ""
                return served
            self.failure = f"no model server answers: {', '.join(self._push.addresses)}"
            await asyncio.sleep(self._settings.push.retry_s)

    async def _until_committed(self, update: WeightUpdate) -> PushOutcome:
        while True:
            try:
                outcome = await self._push.push(update)
            except WeightsError as error:
                self.failure = str(error)
                FAILED.inc()
                logger.error("%s", error)
                await asyncio.sleep(self._settings.push.retry_s)
            else:
                self.failure = ""
                return outcome
