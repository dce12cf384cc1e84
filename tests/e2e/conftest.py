"""A whole stack of our own processes, and a model server in this one that fails where a test says so."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from safactory.contracts.jobs import JobRequest
from safactory.sdk.calls import Facts, NotFoundError
from safactory.sdk.client import Safactory
from safactory.sdk.interrupts import StopFlag
from safactory.sdk.local_stack import own_stack
from safactory.sdk.stack import Stack
from safactory.sdk.stack_plan import plan_stack
from safactory.testkit.fake_engine import MODEL, FakeEngine, serving

ROUTE = "fake"
QUICK = {
    "GATEWAY_SILENCE_TIMEOUT_S": "1",
    "SCHEDULER_HEARTBEAT_EVERY_S": "0.5",
    "SCHEDULER_LEASE_TTL_S": "3",
    "SCHEDULER_RETRY_DELAY_S": "0.1",
    "SCHEDULER_REWARD_WAIT_S": "20",
}
"""The waits of a real stack, shortened."""


@dataclass
class House:
    """A running stack with a client, and the model server behind its route `fake`."""

    home: Path
    stack: Stack
    client: Safactory
    engine: FakeEngine
    base_url: str

    def submit(self, request: JobRequest) -> str:
        """Submit a job on the fake model server."""
        return str(self.client.submit(request.model_copy(update={"route": ROUTE}))["job_id"])

    def until(self, job_id: str, holds: Callable[[Facts], bool], timeout_s: float = 90.0) -> Facts:
        """Return a job's status as soon as something holds."""
        deadline = time.monotonic() + timeout_s
        while not holds(status := self.client.job(job_id)):
            self.stack.check()
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return status

    def results(self, job_id: str, timeout_s: float = 90.0) -> Facts:
        """Return the results of a job that is over, once all of them are archived."""
        status = self.until(job_id, lambda status: status["state"] == "ended", timeout_s)
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(NotFoundError):
                results = self.client.results(job_id)
                if results["attempts"] == status["attempts"]:
                    return results
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Every process of an evaluating stack."""
    home = tmp_path_factory.mktemp("house")
    with (
        serving(engine := FakeEngine()) as base_url,
        own_stack(plan_stack(home, overrides=QUICK), StopFlag(), print) as stack,
        Safactory(stack.plan.urls["scheduler"], stack.plan.urls["dataelf"]) as client,
    ):
        route: Facts = {"base_url": base_url, "model": MODEL}
        client.put_route(stack.plan.urls["gateway"], ROUTE, route, stack.plan.token_key)
        yield House(home, stack, client, engine, base_url)
