"""Ending background tasks."""

from __future__ import annotations

import asyncio


async def cancelled(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and return when it has ended.

    Cancels again while it goes on: a library that catches a cancellation must not keep a service from stopping.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
