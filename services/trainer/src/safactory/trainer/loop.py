"""`TrainingLoop`: wait for groups, make a step, keep it, publish it. This file only sequences.

Guarantees: a job gets exactly the steps it asked for, and its last version is always published; offsets and consumed
groups go into the checkpoint of the weights that they made; every group that is not trained on is counted, and those
dropped for their age are said so on the bus.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from safactory.contracts.errors import ObjectCorrupt, ObjectError, PoisonError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.rollouts import RolloutDropped, RolloutSample
from safactory.infra.bus import Bus
from safactory.infra.health import counter, gauge
from safactory.infra.objects import Objects
from safactory.trainer.batch import make_batch
from safactory.trainer.checkpoints import Checkpoints, TrainerState
from safactory.trainer.group_queue import GroupQueue, QueuedGroup
from safactory.trainer.job_book import JobBook, TrainingJob
from safactory.trainer.policy import Policy
from safactory.trainer.publisher import Publisher
from safactory.trainer.rollout_reader import read_samples
from safactory.trainer.settings import TrainerSettings
from safactory.trainer.staleness import staleness
from safactory.trainer.step import optimise, set_lr

logger = logging.getLogger(__name__)

STEPS = counter("trainer_steps", "Optimiser steps")
GROUPS = counter("trainer_groups", "Groups that need no further work, by what became of them", "outcome")
STEP = gauge("trainer_weight_step", "Optimiser steps since the initial weights")

RETRY_S = 1.0
Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True)
class LoopParts:
    """What the loop puts into order."""

    settings: TrainerSettings
    policy: Policy
    bus: Bus
    objects: Objects
    checkpoints: Checkpoints
    publisher: Publisher
    offsets: Callable[[], Offsets]
    """The lowest offsets that are not done."""


class TrainingLoop:
    """One model's training, over all its jobs."""

    def __init__(self, parts: LoopParts, state: TrainerState) -> None:
        self.jobs = JobBook(state.steps_done)
        self.queue = GroupQueue(state.consumed)
        self.version = state.version
        self._parts = parts
        self._run = state.run
        self._wake = asyncio.Event()
        self._idle_since = time.perf_counter()

    def wake(self) -> None:
        """Say that there may be something to do."""
        self._wake.set()

    async def run(self) -> None:
        """Train for as long as the process lives."""
        publisher, policy = self._parts.publisher, self._parts.policy
        self.version = await publisher.agree(policy, self.version, self._run)
        STEP.set(self.version.step)
        while True:
            self._wake.clear()
            try:
                advanced = await self.advance()
            except ObjectError as error:
                logger.warning("groups cannot be read now: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if not advanced:
                await self._wake.wait()

    async def advance(self) -> bool:
        """Make one step of the first job that has the groups for it; False when none has."""
        await self._forget_jobs_that_are_over()
        for job in self.jobs.active():
            await self._drop_unfit(job)
            # Asked again after the drop: others may have come while it was being published.
            fit = self.queue.trainable(job.job_id, self.version, job.spec.max_staleness)
            if len(fit) < job.spec.groups_per_step:
                continue
            groups = fit[: job.spec.groups_per_step]
            samples = await self._read(groups)
            if samples is not None:
                await self._step(job, groups, samples)
            return True
        return False

    async def _step(self, job: TrainingJob, groups: list[QueuedGroup], samples: list[list[RolloutSample]]) -> None:
        settings, policy = self._parts.settings, self._parts.policy
        idle_s, began = time.perf_counter() - self._idle_since, time.perf_counter()
        batch = make_batch(samples, settings.loss.advantage, settings.micro_batch_tokens)
        lr = settings.optimiser.lr_at(job.progress)
        set_lr(policy.optimiser, lr)
        values = await asyncio.to_thread(
            optimise, policy.model, policy.optimiser, batch, settings.optimiser, settings.loss
        )
        values["lr"] = lr
        values |= _staleness_values([staleness(group.oldest, self.version) for group in groups])
        step_s = time.perf_counter() - began
        self.version = WeightVersion(epoch=self.version.epoch, step=self.version.step + 1)
        job.steps_done += 1
        self._run = (job.job_id, job.steps_done)
        self.queue.remove(groups)
        GROUPS.labels("trained").inc(len(groups))
        STEPS.inc()
        STEP.set(self.version.step)
        checkpoint = await self._checkpoint() if job.over or self._is_due(settings.checkpoint.every_steps) else ""
        push_s = 0.0
        if job.over or self._is_due(settings.push.every_steps):
            push_s = await self._parts.publisher.publish(policy, self.version, self._run, checkpoint)
        whole_s = idle_s + time.perf_counter() - began
        values |= {"step_s": step_s, "push_s": push_s, "idle_s": idle_s, "idle_fraction": idle_s / whole_s}
        await self._parts.bus.publish(
            MetricsReported(run_id=job.job_id, source="trainer", step=job.steps_done, values=values)
        )
        logger.info("step %s of job %s made version %s", job.steps_done, job.job_id, self.version)
        self._idle_since = time.perf_counter()

    def _is_due(self, every_steps: int) -> bool:
        return self.version.step % every_steps == 0

    async def _checkpoint(self) -> str:
        offsets: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in self._parts.offsets().items():
            offsets.setdefault(topic, {})[partition] = offset
        state = TrainerState(
            version=self.version,
            run=self._run,
            offsets=offsets,
            consumed=self.queue.consumed,
            steps_done=self.jobs.steps_done(),
        )
        parts = self._parts
        place = await asyncio.to_thread(parts.checkpoints.write, parts.policy, state, parts.settings.model_dir)
        return str(place)

    async def _read(self, groups: Sequence[QueuedGroup]) -> list[list[RolloutSample]] | None:
        """Return the groups' samples, or None after dropping those that nobody can read."""
        samples: list[list[RolloutSample]] = []
        unreadable: list[QueuedGroup] = []
        for group in groups:
            try:
                samples.append(await read_samples(self._parts.objects, group.rollout))
            except (PoisonError, ObjectCorrupt) as error:
                logger.error("dropping a group: %s", error)
                unreadable.append(group)
        await self._drop(unreadable, "unreadable")
        return None if unreadable else samples

    async def _drop_unfit(self, job: TrainingJob) -> None:
        await self._drop(self.queue.unfit(job.job_id, self.version, job.spec.max_staleness), "stale")

    async def _drop(self, groups: Sequence[QueuedGroup], reason: str) -> None:
        for group in groups:
            rollout = group.rollout
            await self._parts.bus.publish(
                RolloutDropped(
                    group_id=rollout.group_id,
                    job_id=rollout.job_id,
                    environment=rollout.environment,
                    reason=reason,
                    sample_count=rollout.sample_count,
                    reward_mean=rollout.reward_mean,
                )
            )
            GROUPS.labels(reason).inc()
        self.queue.remove(groups)

    async def _forget_jobs_that_are_over(self) -> None:
        for job_id in self.queue.job_ids():
            if self.jobs.is_over(job_id):
                groups = self.queue.of_job(job_id)
                GROUPS.labels("ignored").inc(len(groups))
                self.queue.remove(groups)


def _staleness_values(steps: list[int]) -> dict[str, float]:
    histogram = {f"staleness_count_{step}": float(count) for step, count in sorted(Counter(steps).items())}
    return {"staleness_mean": sum(steps) / len(steps), "staleness_max": float(max(steps))} | histogram
