"""One worker's parts, put together for a runner that a test writes itself."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from safactory.contracts.rpc.v1 import leases_pb2 as pb
from safactory.contracts.rpc.v1 import leases_pb2_grpc as rpc
from safactory.contracts.runner import LaunchSpec, RunOutcome, SimulationStartRequest
from safactory.infra.bus import Bus
from safactory.infra.objects import Objects, make_objects
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.runtime_worker.episode import EpisodeRunner
from safactory.runtime_worker.runtimes.factory import make_runtime
from safactory.runtime_worker.session_folder import WorkerFolder
from safactory.runtime_worker.settings import RuntimeWorkerSettings

LaunchField = Any

PREAMBLE = """
import json, os, signal, subprocess, sys, time
request = json.loads(sys.stdin.read()) if __name__ == "__main__" else {}
def say(**fields):
    print(json.dumps({"session_id": os.environ["SAFACTORY_SESSION_ID"], "status": "succeeded", **fields}), flush=True)
"""


@dataclass
class Worker:
    """A worker without a scheduler: episodes are run by calling it."""

    root: Path
    settings: RuntimeWorkerSettings
    objects: Objects
    bus: Bus
    episodes: EpisodeRunner
    end: Callable[[], Awaitable[None]]
    leases: int = field(default=0)

    def lease(
        self, source: str, *, timeout_s: float = 20.0, row: dict[str, str] | None = None, **launch: LaunchField
    ) -> pb.Lease:
        """Write a runner and return a lease for it."""
        self.leases += 1
        runner = self.root / f"runner_{self.leases}.py"
        runner.write_text(PREAMBLE + textwrap.dedent(source))
        return self.lease_of(runner, timeout_s=timeout_s, row=row, **launch)

    def lease_of(
        self, runner: Path, *, timeout_s: float = 20.0, row: dict[str, str] | None = None, **launch: LaunchField
    ) -> pb.Lease:
        """Return a lease for a runner that is there."""
        self.leases += 1
        spec: dict[str, object] = {"command": ("{python}", runner.name), "runner_path": str(runner), "warm": False}
        session_id = f"session-{self.leases}"
        request = SimulationStartRequest(
            job_id="job-1",
            session_id=session_id,
            agent_name="test",
            gateway_base_url="http://127.0.0.1:9/v1/sessions",
            session_url=f"http://127.0.0.1:9/v1/sessions/{session_id}",
            session_token="signed-token",
            model="default",
            env_params={"dataset": dict(row or {})},
        )
        return pb.Lease(
            lease_id=f"lease-{self.leases}",
            fence=self.leases,
            session_id=session_id,
            job_id="job-1",
            group_id="group-1",
            attempt=1,
            environment="test",
            heartbeat_every_s=0.2,
            timeout_s=timeout_s,
            launch_json=LaunchSpec.model_validate({**spec, **launch}).model_dump_json(),
            request_json=request.model_dump_json(),
        )

    async def run(self, source: str, *, timeout_s: float = 20.0, **launch: LaunchField) -> RunOutcome:
        """Write a runner, run it, and return how it ended."""
        return await self.episodes.run(self.lease(source, timeout_s=timeout_s, **launch))


@dataclass
class SchedulerServer(rpc.LeasesServicer):
    """Gives out the leases put into `waiting`, and remembers what it is told."""

    waiting: list[pb.Lease] = field(default_factory=list)
    stop: set[str] = field(default_factory=set)
    refuse: str = ""
    failures: int = 0
    """So many Complete calls are answered with UNAVAILABLE."""
    acquired: list[pb.AcquireRequest] = field(default_factory=list)
    beats: list[list[str]] = field(default_factory=list)
    completed: dict[str, RunOutcome] = field(default_factory=dict)
    port: int = 0
    server: Any = None

    async def start(self) -> None:
        self.server = grpc.aio.server()
        rpc.add_LeasesServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def end(self) -> None:
        await self.server.stop(None)

    async def Acquire(self, request: pb.AcquireRequest, context: object) -> pb.AcquireResponse:  # noqa: N802
        self.acquired.append(request)
        for _ in range(round(request.wait_s / 0.02) + 1):
            if self.waiting:
                break
            await asyncio.sleep(0.02)
        leases, self.waiting = self.waiting[: request.max_leases], self.waiting[request.max_leases :]
        return pb.AcquireResponse(leases=leases)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: object) -> pb.HeartbeatResponse:  # noqa: N802
        ids = [ref.lease_id for ref in request.leases]
        self.beats.append(ids)
        return pb.HeartbeatResponse(stop=[one for one in ids if one in self.stop])

    async def Complete(  # noqa: N802
        self, request: pb.CompleteRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.CompleteResponse:
        if self.failures > 0:
            self.failures -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.completed[request.lease.lease_id] = RunOutcome.model_validate_json(request.outcome_json)
        return pb.CompleteResponse(accepted=not self.refuse, refusal=self.refuse)

    @staticmethod
    async def until(condition: Callable[[], object], within_s: float = 15.0) -> None:
        """Wait for a condition, and fail when it does not come true."""
        for _ in range(int(within_s / 0.02)):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it did not come true in time")


@pytest.fixture
async def scheduler() -> AsyncIterator[SchedulerServer]:
    server = SchedulerServer()
    await server.start()
    yield server
    await server.end()


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    settings = RuntimeWorkerSettings(
        folder=tmp_path / "sessions", worker_id="w1", kill_grace_s=0.3, snapshot_bytes_max=100_000, warm_up_timeout_s=10
    )
    objects = make_objects(ObjectSettings(url=f"file://{tmp_path}/objects"))
    # No broker: what is published waits in the write-ahead file, where a test can read it.
    bus = Bus(BusSettings(servers="127.0.0.1:9", wal_dir=tmp_path / "wal"), "test")
    folders = WorkerFolder(settings.folder, settings.worker_id)
    folders.make()
    runtime = make_runtime(settings)
    episodes = EpisodeRunner(runtime, folders, objects, bus, settings)
    yield Worker(tmp_path, settings, objects, bus, episodes, runtime.end)
    await runtime.end()
    assert [path.name for path in folders.path.iterdir()] == [".lock"], "a session's folder was left behind"
    folders.remove()
    assert not settings.folder.exists()
