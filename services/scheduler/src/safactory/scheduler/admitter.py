"""`Admitter`: queues the sessions of a job's groups: all of them to evaluate, at the trainer's pace to train."""

from __future__ import annotations

import asyncio
import json
import logging

from safactory.contracts.errors import SafactoryError
from safactory.contracts.ids import new_session_id
from safactory.contracts.jobs import JobCancelled, JobMode
from safactory.contracts.payload import Payload
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.sessions import SessionQueued
from safactory.contracts.weights import WeightsPublished
from safactory.infra.objects import Objects
from safactory.infra.payloads import pack
from safactory.scheduler.finisher import Finisher
from safactory.scheduler.job_book import Job, missing_samples
from safactory.scheduler.journal import Journal
from safactory.scheduler.plan import PlannedGroup, admissible

logger = logging.getLogger(__name__)

BATCH_GROUPS = 64
"""Groups queued between two looks at everything else."""


class Admitter:
    """Admits groups."""

    def __init__(self, journal: Journal, objects: Objects, finisher: Finisher) -> None:
        self._journal = journal
        self._objects = objects
        self._finisher = finisher
        self._lock = asyncio.Lock()

    async def load_rows(self, job: Job) -> None:
        """Read a job's tasks from the object store.

        Raises:
            ObjectError: the store refused or did not answer.
        """
        for environment in job.spec.environments:
            text = (await self._objects.get(environment.tasks)).decode()
            job.rows[environment.name] = [json.loads(line) for line in text.split("\n") if line]
        # What a restart found in the queues can be taken from now on.
        self._journal.queued.set()

    async def pace_changed(self, event: RolloutReady | RolloutDropped | WeightsPublished) -> None:
        """Take note of how far the trainer is, and admit what now may be."""
        self._journal.book.apply(event)
        await self.admit_all()

    async def admit_all(self) -> None:
        """Admit what may be admitted now, of every job; one job's failure is its own."""
        async with self._lock:
            for job in list(self._journal.book.jobs.values()):
                try:
                    await self._admit(job)
                except SafactoryError as error:
                    logger.warning("job %s: admission failed, will be tried again: %s", job.spec.job_id, error)

    async def cancel(self, job: Job, reason: str) -> None:
        """Stop a job; what was planned and never queued is queued now, so that it has an ending too."""
        async with self._lock:
            await self._cancel(job, reason)

    async def _admit(self, job: Job) -> None:
        if job.ended or job.cancelled:
            return
        if job.spec.mode is JobMode.TRAIN and job.spec.training and job.steps_done >= job.spec.training.steps:
            await self._cancel(job, "training is done")
            return
        if not job.rows:
            await self.load_rows(job)
        for _ in range(BATCH_GROUPS):
            group = job.next_group
            if group is None or not job.admitting or not self._has_room(job):
                break
            await self._queue(job, group)
        await self._finisher.end_job_if_done(job)

    async def _cancel(self, job: Job, reason: str) -> None:
        if job.cancelled or job.ended:
            return
        await self._journal.record(JobCancelled(job_id=job.spec.job_id, resumption=job.resumption, reason=reason))
        while job.spec.mode is JobMode.EVALUATE and job.next_group is not None:
            if not job.rows:
                await self.load_rows(job)
            await self._queue(job, job.next_group)
        await self._finisher.end_waiting(job, reason)

    def _has_room(self, job: Job) -> bool:
        training = job.spec.training
        if job.spec.mode is JobMode.EVALUATE or training is None:
            return True
        return job.useful_groups < admissible(job.steps_done, training.groups_per_step, training.max_staleness)

    async def _queue(self, job: Job, group: PlannedGroup) -> None:
        spec = job.spec
        environment = spec.environments[group.environment_index]
        row = job.rows[environment.name][group.row]
        task = await pack(self._objects, json.dumps(row, ensure_ascii=False), prefix="tasks")
        samples = missing_samples(job.groups.get(group.group_id), group, job)
        await self._journal.record(*(self._event(job, group, sample, task) for sample in samples))

    def _event(self, job: Job, group: PlannedGroup, sample: int, task: Payload) -> SessionQueued:
        environment = job.spec.environments[group.environment_index]
        return SessionQueued(
            session_id=new_session_id(),
            attempt=1,
            job_id=job.spec.job_id,
            group_id=group.group_id,
            environment=environment.name,
            sample=sample,
            group_size=group.size,
            row=group.row,
            epoch=group.epoch,
            task=task,
            evaluator_path=f"{environment.root}/rule_evaluator.py",
            evaluation_timeout_s=environment.evaluation_timeout_s,
            pass_score=environment.pass_score,
            route=job.spec.route,
            mode=job.spec.mode,
        )
