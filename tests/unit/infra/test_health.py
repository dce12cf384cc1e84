"""/healthz, /readyz and /metrics over real HTTP."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI
from pydantic import JsonValue

from safactory.contracts.errors import BusError
from safactory.infra.health import add_health, counter, gauge
from safactory.testkit.app_server import served


class Backend:
    """Something that may be away."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def check(self) -> None:
        if self.reason:
            raise BusError(self.reason)

    async def check_later(self) -> None:
        await asyncio.sleep(0)
        self.check()


async def get(url: str, path: str) -> httpx.Response:
    return await asyncio.to_thread(httpx.get, url + path)


def facts() -> dict[str, JsonValue]:
    return {"routes": ["default"]}


async def test_a_service_is_alive_before_it_is_ready_and_says_what_it_waits_for() -> None:
    bus, store = Backend("no broker at x:1"), Backend()
    app = FastAPI()
    add_health(app, {"bus": bus.check, "objects": store.check_later}, facts)
    async with served(app, until_ready=False) as url:
        assert (await get(url, "/healthz")).json() == {"status": "ok"}
        waiting = await get(url, "/readyz")
        assert waiting.status_code == 503
        assert waiting.json() == {"status": "starting", "not_ready": {"bus": "BusError: no broker at x:1"}}
        bus.reason, store.reason = "", "disk full"
        assert (await get(url, "/readyz")).json()["not_ready"] == {"objects": "BusError: disk full"}
        store.reason = ""
        ready = await get(url, "/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "routes": ["default"]})


async def test_metrics_are_told_in_prometheus_form() -> None:
    counter("health_test_things", "Things", "kind").labels("x").inc(2)
    assert counter("health_test_things", "Things", "kind") is counter("health_test_things", "Things", "kind")
    gauge("health_test_level", "Level").set(0.5)
    app = FastAPI()
    add_health(app, {})
    async with served(app) as url:
        text = (await get(url, "/metrics")).text
    assert 'health_test_things_total{kind="x"} 2.0' in text
    assert "health_test_level 0.5" in text
