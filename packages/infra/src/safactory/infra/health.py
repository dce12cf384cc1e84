"""Health: /healthz (the process answers), /readyz (its backends answer) and /metrics, the same for every service."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from pydantic import JsonValue

Check = Callable[[], Awaitable[None] | None]
"""Returns when its backend is usable, and raises with the reason when it is not."""

REGISTRY = CollectorRegistry(auto_describe=True)
"""Of this process; without the client library's own process metrics."""

_counters: dict[str, Counter] = {}
_gauges: dict[str, Gauge] = {}


def counter(name: str, description: str, *labels: str) -> Counter:
    """Return the counter of this name, made on first use."""
    if name not in _counters:
        _counters[name] = Counter(name, description, labels, registry=REGISTRY)
    return _counters[name]


def gauge(name: str, description: str, *labels: str) -> Gauge:
    """Return the gauge of this name, made on first use."""
    if name not in _gauges:
        _gauges[name] = Gauge(name, description, labels, registry=REGISTRY)
    return _gauges[name]


def add_health(
    app: FastAPI, checks: Mapping[str, Check], facts: Callable[[], dict[str, JsonValue]] | None = None
) -> None:
    """Add the three routes; `facts` are added to the answer of a ready service."""

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        reasons = {name: reason for name, check in checks.items() if (reason := await _reason(check))}
        if reasons:
            return JSONResponse({"status": "starting", "not_ready": reasons}, status_code=503)
        return JSONResponse({"status": "ready", **(facts() if facts else {})})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


async def _reason(check: Check) -> str:
    try:
        answer = check()
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:  # noqa: BLE001  # a probe reports every failure, whatever it is
        return f"{type(error).__name__}: {error}"
    return ""
