"""Wiring of the trainer: restore, read the bus from where the weights left off, and train."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI
from pydantic import JsonValue

from safactory.contracts.errors import ServiceError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.jobs import JobCancelled, JobResumed, JobSubmitted
from safactory.contracts.rollouts import RolloutReady
from safactory.contracts.topics import JOB, ROLLOUT
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Delivery
from safactory.infra.health import add_health
from safactory.infra.objects import make_objects
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.trainer.checkpoints import Checkpoints, TrainerState
from safactory.trainer.handlers.job_cancelled import on_job_cancelled
from safactory.trainer.handlers.job_resumed import on_job_resumed
from safactory.trainer.handlers.job_submitted import on_job_submitted
from safactory.trainer.handlers.rollout_ready import on_rollout_ready
from safactory.trainer.loop import LoopParts, TrainingLoop
from safactory.trainer.policy import Policy
from safactory.trainer.publisher import Publisher
from safactory.trainer.settings import TrainerSettings
from safactory.trainer.weights_push import WeightsPush

logger = logging.getLogger(__name__)


class Trainer:
    """One trainer process: its parts, started and stopped together."""

    def __init__(self, settings: TrainerSettings, bus: BusSettings, objects: ObjectSettings) -> None:
        torch.set_num_threads(settings.threads)
        self.bus = Bus(bus, "trainer")
        checkpoints = Checkpoints(settings.checkpoint.dir, settings.checkpoint.keep)
        resumed = checkpoints.latest()
        state = TrainerState(version=WeightVersion()) if resumed is None else checkpoints.read_state(resumed)
        policy = Policy(settings, resumed or settings.model_dir)
        if resumed is not None:
            checkpoints.restore_optimiser(resumed, policy)
        self.push = WeightsPush(settings.engine_addresses, settings.push.timeout_s)
        self.publisher = Publisher(settings, self.push, self.bus)
        # Jobs are read from the beginning each time: which are over is in the checkpoint, not in an offset.
        self.job_events = Consumer(self.bus, "trainer-jobs", [JOB], self._on_job, start="beginning")
        self.rollouts = Consumer(self.bus, "trainer", [ROLLOUT], self._on_rollout, start=_starts(state))
        parts = LoopParts(
            settings=settings,
            policy=policy,
            bus=self.bus,
            objects=make_objects(objects),
            checkpoints=checkpoints,
            publisher=self.publisher,
            offsets=self.rollouts.positions,
        )
        self.loop = TrainingLoop(parts, state)
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start reading and training."""
        await self.bus.start()
        await self.job_events.start()
        await self.rollouts.start()
        self.task = asyncio.create_task(self._train(), name="training")
        self.task.add_done_callback(_log_end)

    async def stop(self) -> None:
        """Stop; what was not checkpointed is done again after the next start."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        await self.rollouts.stop()
        await self.job_events.stop()
        await self.push.close()
        await self.bus.stop()

    async def _train(self) -> None:
        # A job that was cancelled long ago must not get a step because its cancellation had not been read yet.
        await self.job_events.caught_up()
        await self.loop.run()

    async def _on_job(self, delivery: Delivery) -> None:
        event = delivery.event
        if isinstance(event, JobSubmitted):
            on_job_submitted(event, self.loop)
        elif isinstance(event, JobCancelled):
            on_job_cancelled(event, self.loop)
        elif isinstance(event, JobResumed):
            on_job_resumed(event, self.loop)

    async def _on_rollout(self, delivery: Delivery) -> None:
        if isinstance(delivery.event, RolloutReady):
            on_rollout_ready(delivery.event, delivery, self.loop)

    def check_training(self) -> None:
        """Return when the loop is alive and the model servers take versions.

        Raises:
            ServiceError: they do not.
        """
        if self.task is None:
            raise ServiceError("the training loop does not run yet")
        if self.task.done():
            raise ServiceError(f"the training loop has ended: {self.task.exception()!r}")
        if self.publisher.failure:
            raise ServiceError(self.publisher.failure)


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the training loop has ended", exc_info=error)


def _starts(state: TrainerState) -> dict[tuple[str, int], int]:
    return {(topic, partition): offset for topic, of in state.offsets.items() for partition, offset in of.items()}


def create_app(settings: TrainerSettings, bus: BusSettings, objects: ObjectSettings) -> FastAPI:
    """Return the application, which has health routes only."""
    trainer = Trainer(settings, bus, objects)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await trainer.start()
        yield
        await trainer.stop()

    app = FastAPI(title="Safactory trainer", lifespan=lifespan)
    app.state.trainer = trainer

    def facts() -> dict[str, JsonValue]:
        return {"model": settings.model_name, "weight_version": str(trainer.loop.version)}

    checks = {
        "bus": trainer.bus.check,
        "jobs": trainer.job_events.check,
        "training": trainer.check_training,
    }
    add_health(app, checks, facts)
    return app
