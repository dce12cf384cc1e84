"""Serve one of our applications over real HTTP inside a test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import uvicorn
from fastapi import FastAPI

from safactory.testkit.ports import free_port

START_S = 30.0


@contextlib.asynccontextmanager
async def served(app: FastAPI, *, until_ready: bool = True) -> AsyncIterator[str]:
    """Yield the root URL; by default only when /readyz answers 200."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=1)
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    url = f"http://127.0.0.1:{port}"
    try:
        await _ready(url, "/readyz" if until_ready else "/healthz", task)
        yield url
    finally:
        server.should_exit = True
        async with asyncio.timeout(15):
            await task


async def _ready(url: str, path: str, task: asyncio.Task[None]) -> None:
    deadline = asyncio.get_running_loop().time() + START_S
    answer = "no answer"
    while asyncio.get_running_loop().time() < deadline:
        if task.done():
            task.result()
            raise RuntimeError("the application stopped while it started")
        with contextlib.suppress(httpx.HTTPError):
            response = await asyncio.to_thread(httpx.get, url + path)
            if response.status_code == 200:
                return
            answer = response.text
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{url}{path} is not ready after {START_S:g} s: {answer}")
