"""Ending background tasks, and work that must not be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


async def cancelled(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and return when it has ended.

    Cancels again while it goes on: a library that catches a cancellation must not keep a service from stopping.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)


async def uncut(work: Coroutine[None, None, None], grace_s: float = 2.0) -> None:
    """Do the work; a cancellation in its middle gives it a moment to come through before it is cut.

    For clients that leave their socket open when a connection attempt is cut.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=grace_s)
        if not task.cancel():
            task.exception()
        raise
