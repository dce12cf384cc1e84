"""`ProcessRuntime`: runners as local processes, forked from the parents of a `WarmPool`.

A runner gets a session and process group of its own. It is told its deadline; there it gets SIGTERM, a little later
SIGKILL, with its whole group. Its output is drained for as long as it writes and kept in part.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator

from safactory.runtime_worker.output import BoundedOutput
from safactory.runtime_worker.runner_parent import RunnerParent, SpawnedRunner, SpawnOrder
from safactory.runtime_worker.runtimes.base import RunnerExit, RunnerStart
from safactory.runtime_worker.warm_pool import WarmPool, argv_of, require_runner

STDERR_TAIL_BYTES = 4096
PIPE_CLOSE_S = 1.0
"""How long a dead runner's pipes may still be held open by a process that escaped."""
KILL_WAIT_S = 5.0
"""After SIGKILL a parent that does not report the death is itself taken for dead."""


class ProcessRuntime:
    """Runs runners on this machine."""

    def __init__(self, pool: WarmPool, *, kill_grace_s: float) -> None:
        self._pool = pool
        self._kill_grace_s = kill_grace_s

    async def run(self, start: RunnerStart) -> RunnerExit:
        """Run one runner to its end; a cancelled call has killed it before it returns.

        Raises:
            ServiceError: it could not be started, or its parent died.
        """
        require_runner(start.launch)
        parent = await self._pool.parent_for(start.launch)
        half = start.launch.stdout_bytes_max // 2
        with (
            _output(head_bytes_max=half, tail_bytes_max=start.launch.stdout_bytes_max - half) as stdout,
            _output(head_bytes_max=0, tail_bytes_max=STDERR_TAIL_BYTES) as stderr,
        ):
            started_s = time.monotonic()
            runner = await self._spawn(parent, start, stdout, stderr)
            exit_code, timed_out = await self._wait(parent, runner, start.deadline_unix_s - time.time())
            wall_s = time.monotonic() - started_s
            await asyncio.gather(stdout.finish(PIPE_CLOSE_S), stderr.finish(PIPE_CLOSE_S))
            return RunnerExit(
                exit_code=exit_code,
                timed_out=timed_out,
                stdout=stdout.text,
                stdout_bytes=stdout.bytes_seen,
                stderr_tail=stderr.text,
                wall_s=wall_s,
                warm=bool(parent.runner_path),
            )

    async def end(self) -> None:
        """End the parents."""
        await self._pool.end()

    async def _spawn(
        self, parent: RunnerParent, start: RunnerStart, stdout: BoundedOutput, stderr: BoundedOutput
    ) -> SpawnedRunner:
        argv = argv_of(start.launch)
        stdin = os.open(start.folder.request, os.O_RDONLY)
        try:
            return await parent.spawn(
                SpawnOrder(
                    argv=argv[1:] if parent.runner_path else argv,
                    cwd=start.launch.workdir or str(start.folder.work),
                    env=start.variables,
                    streams=(stdin, stdout.writer, stderr.writer),
                )
            )
        finally:
            os.close(stdin)
            stdout.close_writer()
            stderr.close_writer()

    async def _wait(self, parent: RunnerParent, runner: SpawnedRunner, left_s: float) -> tuple[int, bool]:
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                return await asyncio.shield(runner.ended), False
        except TimeoutError:
            await runner.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._kill_grace_s):
                    return await asyncio.shield(runner.ended), True
            return await self._kill(parent, runner), True
        finally:
            if not runner.ended.done():
                await self._kill(parent, runner)

    async def _kill(self, parent: RunnerParent, runner: SpawnedRunner) -> int:
        await runner.signal(signal.SIGKILL)
        try:
            async with asyncio.timeout(KILL_WAIT_S):
                return await asyncio.shield(runner.ended)
        except TimeoutError:
            await parent.end()
            raise


@contextlib.contextmanager
def _output(*, head_bytes_max: int, tail_bytes_max: int) -> Iterator[BoundedOutput]:
    output = BoundedOutput(head_bytes_max=head_bytes_max, tail_bytes_max=tail_bytes_max)
    try:
        yield output
    finally:
        output.close()
