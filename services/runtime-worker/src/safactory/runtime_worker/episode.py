"""`Episode`: one lease from its folder to its outcome.

Whatever happens, it answers with an outcome; only cancellation goes through, after the runner is dead. The folder is
gone when it answers, and what the runner left in it is in the object store.
"""

from __future__ import annotations

import asyncio
import logging
import time

from pydantic import ValidationError

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import ObjectError, SafactoryError, ServiceError
from safactory.contracts.rpc.v1 import leases_pb2 as pb
from safactory.contracts.runner import LaunchSpec, RunOutcome, SimulationStartRequest
from safactory.contracts.snapshots import SnapshotTaken
from safactory.infra.boundary import boundary
from safactory.infra.bus import Bus
from safactory.infra.health import counter
from safactory.infra.objects import Objects
from safactory.runtime_worker.outcome import outcome_of
from safactory.runtime_worker.runtimes.base import RunnerExit, RunnerStart, Runtime
from safactory.runtime_worker.session_folder import SessionFolder, WorkerFolder
from safactory.runtime_worker.settings import RuntimeWorkerSettings
from safactory.runtime_worker.snapshot import take_snapshot
from safactory.runtime_worker.variables import runner_variables

logger = logging.getLogger(__name__)

SNAPSHOTS = counter("runtime_worker_snapshots", "Working folders that held something, by what became of it", "what")


class EpisodeRunner:
    """Runs leases, each on its own."""

    def __init__(
        self, runtime: Runtime, folders: WorkerFolder, objects: Objects, bus: Bus, settings: RuntimeWorkerSettings
    ) -> None:
        self._runtime = runtime
        self._folders = folders
        self._objects = objects
        self._bus = bus
        self._settings = settings

    async def run(self, lease: pb.Lease) -> RunOutcome:
        """Run the lease's runner to its end and return how it ended."""
        try:
            launch = LaunchSpec.model_validate_json(lease.launch_json)
            request = SimulationStartRequest.model_validate_json(lease.request_json)
        except ValidationError as error:
            return _could_not(f"the lease cannot be read: {error.errors(include_url=False)[0]}")
        folder = self._folders.session(lease.session_id, lease.attempt, lease.fence)
        try:
            with boundary(ServiceError, "the worker failed"):
                return await self._run_in(folder, lease, launch, request)
        except SafactoryError as error:
            return _could_not(str(error))
        finally:
            await asyncio.to_thread(folder.remove)

    async def _run_in(
        self, folder: SessionFolder, lease: pb.Lease, launch: LaunchSpec, request: SimulationStartRequest
    ) -> RunOutcome:
        request.deadline_unix_s = time.time() + lease.timeout_s
        request_json = request.model_dump_json()
        with boundary(ServiceError, "the session's folder could not be made"):
            folder.make(request_json)
        variables = runner_variables(request, request_json, launch, folder, self._settings.runner_path)
        start = RunnerStart(launch, folder, variables, request.deadline_unix_s)
        with boundary(ServiceError, "the runner could not be started"):
            ended = await self._runtime.run(start)
        # In a thread: reading megabytes of a stranger's JSON must not hold up the heartbeats.
        outcome = await asyncio.to_thread(_outcome, ended, launch, lease.session_id, folder)
        if not launch.workdir and self._settings.snapshot_bytes_max:
            await self._keep(folder, lease)
        return outcome

    async def _keep(self, folder: SessionFolder, lease: pb.Lease) -> None:
        """Snapshot the working folder; a snapshot that cannot be taken changes no outcome."""
        if not any(folder.work.iterdir()):
            return
        try:
            with boundary(ObjectError, "the working folder could not be read"):
                snapshot = await asyncio.to_thread(take_snapshot, folder.work, self._settings.snapshot_bytes_max)
            if snapshot.archive is None:
                if snapshot.files:
                    SNAPSHOTS.labels("too_large").inc()
                    logger.warning("no snapshot of %d bytes in %d files", snapshot.content_bytes, snapshot.files)
                return
            ref = await self._objects.put(snapshot.archive, prefix="snapshots")
            await self._bus.publish(
                SnapshotTaken(
                    session_id=lease.session_id,
                    attempt=lease.attempt,
                    job_id=lease.job_id,
                    kind="workdir",
                    sha256=ref.sha256,
                    files=snapshot.files,
                    object=ref,
                )
            )
        except SafactoryError as error:
            SNAPSHOTS.labels("failed").inc()
            logger.error("the snapshot is lost: %s", error)
        else:
            SNAPSHOTS.labels("taken").inc()


def _outcome(ended: RunnerExit, launch: LaunchSpec, session_id: str, folder: SessionFolder) -> RunOutcome:
    return outcome_of(ended, launch, session_id, folder.result_text())


def _could_not(cause: str) -> RunOutcome:
    return RunOutcome(reason=EndReason.INFRASTRUCTURE_ERROR, cause=cause)
