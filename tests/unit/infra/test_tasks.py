"""Tasks that end when they are told to, and work that comes through."""

from __future__ import annotations

import asyncio

import pytest

from safactory.infra.tasks import cancelled, uncut


async def test_a_task_that_swallows_one_cancellation_is_ended_all_the_same() -> None:
    swallowed = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.append(1)
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await cancelled(task)
    assert (swallowed, task.cancelled()) == ([1], True)
    await cancelled(None)
    await cancelled(task)


async def test_work_that_must_not_be_cut_comes_through_and_the_cancellation_after_it() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.1)
        done.append(1)

    task = asyncio.create_task(uncut(work()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]


async def test_work_that_hangs_is_cut_after_its_grace() -> None:
    task = asyncio.create_task(uncut(asyncio.sleep(60), grace_s=0.05))
    await asyncio.sleep(0.02)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_failure_of_uncut_work_is_the_callers() -> None:
    async def work() -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        await uncut(work())
