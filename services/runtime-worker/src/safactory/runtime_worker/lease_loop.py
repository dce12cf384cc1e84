"""`LeaseLoop`: takes leases while there are free slots, runs an episode for each, keeps them alive, and reports.

A slot is free again when the scheduler has answered for its lease. A lease that the scheduler stops is killed and not
reported. On stop, every runner is killed and reported as `infrastructure_error`, so that its session runs elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import ServiceError
from safactory.contracts.rpc.v1 import leases_pb2 as pb
from safactory.contracts.runner import RunOutcome
from safactory.infra.health import counter, gauge
from safactory.infra.logs import log_context
from safactory.runtime_worker.runtimes.factory import RUNTIMES
from safactory.runtime_worker.scheduler_client import SchedulerClient, ref_of
from safactory.runtime_worker.settings import RuntimeWorkerSettings

logger = logging.getLogger(__name__)

BUSY = gauge("runtime_worker_busy_slots", "Sessions that run now")
SLOTS = gauge("runtime_worker_slots", "Sessions that may run at once")
SESSIONS = counter("runtime_worker_sessions", "Sessions reported to the scheduler, by ending and kind of start",
                   "reason", "start")  # fmt: skip
DROPPED = counter("runtime_worker_outcomes_dropped", "Outcomes that no report took, and why", "why")

BACKOFF_MAX_S = 5.0
HEARTBEAT_DEFAULT_S = 5.0

RunEpisode = Callable[[pb.Lease], Awaitable[RunOutcome]]


@dataclass
class HeldLease:
    """One lease and the task that runs its episode."""

    lease: pb.Lease
    task: asyncio.Task[None]
    stopped: bool = False
    """Whether the scheduler has taken the lease back."""
    reporting: bool = False
    """Whether the runner has ended: from here on the scheduler may end the lease while its answer is on the way."""


class LeaseLoop:
    """All leases of one worker."""

    def __init__(self, client: SchedulerClient, run_episode: RunEpisode, settings: RuntimeWorkerSettings) -> None:
        self._client = client
        self._run_episode = run_episode
        self._settings = settings
        self._held: dict[str, HeldLease] = {}
        self._slot_free = asyncio.Event()
        self._lease_came = asyncio.Event()
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        SLOTS.set(settings.slots)

    async def start(self) -> None:
        """Begin to take leases, in the background."""
        self._loops = [
            asyncio.create_task(self._acquire_forever(), name="acquire"),
            asyncio.create_task(self._heartbeat_forever(), name="heartbeat"),
        ]

    async def stop(self) -> None:
        """Take no more leases, kill every runner, and report each as far as the scheduler listens."""
        self._stopping = True
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        tasks = [held.task for held in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _acquire_forever(self) -> None:
        failures = 0
        while True:
            free = self._settings.slots - len(self._held)
            if free <= 0:
                self._slot_free.clear()
                await self._slot_free.wait()
                continue
            # The first answer tells that the scheduler is there, so it is not waited for until there is work.
            wait_s = self._settings.acquire_wait_s if self._client.connected else 0.0
            try:
                leases = await self._client.acquire(self._settings.slots, free, wait_s, RUNTIMES)
            except ServiceError as error:
                failures += 1
                logger.warning("no leases: %s", error)
                await asyncio.sleep(min(BACKOFF_MAX_S, 0.2 * 2 ** min(failures, 10)))
            else:
                failures = 0
                for lease in leases:
                    self._hold(lease)

    def _hold(self, lease: pb.Lease) -> None:
        if lease.lease_id in self._held:
            return
        task = asyncio.create_task(self._serve(lease), name=f"session-{lease.session_id}")
        self._held[lease.lease_id] = HeldLease(lease, task)
        task.add_done_callback(lambda _: self._drop(lease.lease_id))
        self._lease_came.set()
        BUSY.set(len(self._held))

    def _drop(self, lease_id: str) -> None:
        del self._held[lease_id]
        self._slot_free.set()
        BUSY.set(len(self._held))

    async def _serve(self, lease: pb.Lease) -> None:
        with log_context(session_id=lease.session_id):
            started_s = time.monotonic()
            try:
                outcome = await self._run_episode(lease)
            except asyncio.CancelledError:
                if not self._stopping:
                    DROPPED.labels("stopped").inc()
                    raise
                outcome = RunOutcome(
                    reason=EndReason.INFRASTRUCTURE_ERROR,
                    cause="the worker shut down while the runner was running: the session is run again elsewhere",
                    wall_s=time.monotonic() - started_s,
                )
            await self._report(lease, outcome)

    async def _report(self, lease: pb.Lease, outcome: RunOutcome) -> None:
        self._held[lease.lease_id].reporting = True
        failures = 0
        give_up_s = time.monotonic() + self._settings.shutdown_report_s
        while True:
            try:
                refusal = await self._client.complete(lease, outcome.model_dump_json())
            except ServiceError as error:
                failures += 1
                logger.warning("the outcome waits: %s", error)
                if self._stopping and time.monotonic() > give_up_s:
                    DROPPED.labels("shutdown").inc()
                    return
                await asyncio.sleep(min(BACKOFF_MAX_S, 0.2 * 2 ** min(failures, 10)))
                continue
            if refusal:
                DROPPED.labels("fenced").inc()
                logger.info("the outcome was refused, somebody else has the session: %s", refusal)
            else:
                SESSIONS.labels(outcome.reason.value, "warm" if outcome.warm else "cold").inc()
            return

    async def _heartbeat_forever(self) -> None:
        while True:
            await self._lease_came.wait()
            every_s = [held.lease.heartbeat_every_s for held in self._held.values() if held.lease.heartbeat_every_s > 0]
            await asyncio.sleep(min(every_s, default=HEARTBEAT_DEFAULT_S))
            held = [held for held in self._held.values() if not held.stopped]
            if not held:
                if not self._held:
                    self._lease_came.clear()
                continue
            try:
                stop = await self._client.heartbeat([ref_of(one.lease) for one in held])
            except ServiceError as error:
                logger.warning("no heartbeat: %s", error)
                continue
            for lease_id in stop:
                if (one := self._held.get(lease_id)) and not one.stopped and not one.reporting:
                    one.stopped = True
                    one.task.cancel()
