"""What flows of the scheduler share: one with its gateway and model server, and a worker that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest_asyncio
import yaml
from pydantic import SecretStr

from safactory.contracts.endings import EndReason
from safactory.contracts.rpc.v1 import leases_pb2 as pb
from safactory.contracts.rpc.v1 import leases_pb2_grpc as rpc
from safactory.contracts.runner import RunOutcome, SimulationStartRequest
from safactory.contracts.sessions import SessionEnded
from safactory.gateway.app import create_app as create_gateway
from safactory.gateway.settings import GatewaySettings
from safactory.infra.bus import Bus
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.scheduler.app import create_app
from safactory.scheduler.settings import SchedulerSettings
from safactory.testkit import builders
from safactory.testkit.app_server import served
from safactory.testkit.fake_engine import FakeEngine, serving
from safactory.testkit.ports import free_port
from safactory.testkit.recorder import Recorder, recording

TOKENS = TokenSettings(key=SecretStr("k" * 32))


class Worker:
    """A worker that does what a test tells it to."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self._channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.initial_reconnect_backoff_ms", 50)]
        )
        self.stub: Any = rpc.LeasesStub(self._channel)

    async def close(self) -> None:
        await self._channel.close(None)

    async def acquire(self, count: int = 1, wait_s: float = 10.0) -> list[pb.Lease]:
        """Return exactly so many leases."""
        found: list[pb.Lease] = []
        while len(found) < count:
            request = pb.AcquireRequest(
                worker_id=self.name, slots=8, max_leases=count - len(found), wait_s=wait_s, runtimes=["process"]
            )
            got = list((await self.stub.Acquire(request, wait_for_ready=True)).leases)
            assert got, f"{len(found)} of {count} leases after {wait_s:g} s"
            found += got
        return found

    async def nothing_to_do(self, wait_s: float = 0.3) -> bool:
        request = pb.AcquireRequest(worker_id=self.name, slots=8, max_leases=8, wait_s=wait_s)
        return not (await self.stub.Acquire(request)).leases

    async def heartbeat(self, *leases: pb.Lease) -> list[str]:
        refs = [pb.LeaseRef(lease_id=lease.lease_id, fence=lease.fence) for lease in leases]
        request = pb.HeartbeatRequest(worker_id=self.name, leases=refs)
        return list((await self.stub.Heartbeat(request, wait_for_ready=True)).stop)

    async def call_model(self, lease: pb.Lease) -> None:
        start = SimulationStartRequest.model_validate_json(lease.request_json)
        body = {"model": start.model, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Authorization": f"Bearer {start.session_token}"}
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{start.session_url}/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text

    def report(self, lease: pb.Lease, **outcome: Any) -> pb.CompleteRequest:
        fields = RunOutcome(**({"reason": EndReason.SUCCEEDED} | outcome))
        return pb.CompleteRequest(
            worker_id=self.name,
            lease=pb.LeaseRef(lease_id=lease.lease_id, fence=lease.fence),
            session_id=lease.session_id,
            attempt=lease.attempt,
            outcome_json=fields.model_dump_json(),
        )

    async def complete(self, lease: pb.Lease, **outcome: Any) -> pb.CompleteResponse:
        answer: pb.CompleteResponse = await self.stub.Complete(self.report(lease, **outcome), wait_for_ready=True)
        return answer


class Factory:
    """A scheduler, its gateway and engine, a worker, and what the bus saw."""

    def __init__(self, bus: Bus, objects: ObjectSettings, folder: Path, recorder: Recorder) -> None:
        self.bus = bus
        self.recorder = recorder
        self._objects = objects
        self.folder = folder
        self.port = free_port()
        """Where workers find the scheduler."""
        self.workers: list[Worker] = []
        self.worker = self.new_worker("worker-0")
        self._gateway_port = free_port()
        self._gateway_url = ""
        self._url = ""

    def new_worker(self, name: str) -> Worker:
        self.workers.append(Worker(self.port, name))
        return self.workers[-1]

    @contextlib.asynccontextmanager
    async def gateway(self, base_url: str) -> AsyncIterator[None]:
        config = self.folder / "gateway.yaml"
        config.write_text(yaml.safe_dump({"llm_routes": {"default": {"base_url": base_url, "model": "fake"}}}))
        settings = GatewaySettings(grpc_port=self._gateway_port, config=config)
        app = create_gateway(settings, self._bus_settings("gateway"), self._objects, TOKENS)
        async with served(app) as url:
            self._gateway_url = url
            yield

    @contextlib.asynccontextmanager
    async def scheduler(self, lease_s: float = 30.0) -> AsyncIterator[None]:
        """Run one life of the scheduler."""
        settings = SchedulerSettings(
            grpc_port=self.port,
            gateway_url=self._gateway_url,
            gateway_grpc=f"127.0.0.1:{self._gateway_port}",
            lease_ttl_s=lease_s,
            retry_delay_s=0.01,
            seal_drain_s=0.2,
            reward_wait_s=20.0,
            tick_s=0.05,
        )
        app = create_app(settings, self._bus_settings("scheduler"), self._objects, TOKENS)
        async with served(app) as url:
            self._url = url
            yield

    def _bus_settings(self, name: str) -> BusSettings:
        return self.bus.settings.model_copy(update={"wal_dir": self.folder / f"{name}-wal"})

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(timeout=20) as client:
            return await client.post(self._url + path, json=body)

    async def submit(self, tasks: int = 1, samples: int = 1, **changes: Any) -> str:
        maze = self.folder / "maze"
        maze.mkdir(exist_ok=True)
        (maze / "maze_config.yaml").write_text("environments: [{env_name: maze, dataset: rows.jsonl}]\n")
        (maze / "maze_start.yaml").write_text("agent_name: maze\n")
        (maze / "runner.py").write_text("")
        (maze / "rows.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(tasks)))
        body = {"agent_config": {"path": str(maze / "maze_config.yaml")}, "samples": samples}
        answer = await self.post("/v1/jobs", body | changes)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_id"])

    async def status(self, job_id: str, until: Callable[[dict[str, Any]], bool] = bool) -> dict[str, Any]:
        """Return the first status that is what the test waits for."""
        found: dict[str, Any] = {}
        async with httpx.AsyncClient() as client:
            for _ in range(300):
                found = (await client.get(f"{self._url}/v1/jobs/{job_id}")).json()
                if until(found):
                    return found
                await asyncio.sleep(0.05)
        raise AssertionError(f"the job is still {found}")

    async def score(self, lease: pb.Lease, score: float | None = 10.0) -> None:
        reward = builders.a_reward_scored(
            session_id=lease.session_id, attempt=lease.attempt, job_id=lease.job_id, group_id=lease.group_id,
            environment="maze", score=score, passed=score == 10.0, error="" if score is not None else "no number",
        )  # fmt: skip
        await self.bus.publish(reward)

    async def play(self, lease: pb.Lease, score: float | None = 10.0) -> None:
        """Do all that a session needs for its ending."""
        await self.worker.call_model(lease)
        assert (await self.worker.complete(lease)).accepted
        await self.score(lease, score)

    async def endings(self, count: int) -> dict[tuple[str, int], str]:
        """Return the endings by session and attempt, when there are so many, and see that none comes twice."""
        found = await self.recorder.wait_for(SessionEnded, count)
        await asyncio.sleep(0.2)
        found = self.recorder.of(SessionEnded)
        by_attempt = {(ended.session_id, ended.attempt): ended.reason.value for ended in found}
        assert len(found) == len(by_attempt) == count
        return by_attempt


@pytest_asyncio.fixture(loop_scope="function")
async def factory(bus: Bus, object_settings: ObjectSettings, tmp_path: Path) -> AsyncIterator[Factory]:
    with serving(FakeEngine()) as base_url:
        async with recording(bus) as recorder:
            factory = Factory(bus, object_settings, tmp_path, recorder)
            async with factory.gateway(base_url):
                yield factory
            for worker in factory.workers:
                await worker.close()
