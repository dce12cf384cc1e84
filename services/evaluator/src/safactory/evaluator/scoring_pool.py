"""`ScoringPool`: scoring processes that can be killed, each running evaluators one at a time.

A case waits for a free process without a limit; its time counts from the moment that a process takes it. An evaluator
that runs too long, or takes its process down, costs its own score and nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from safactory.contracts.errors import EvaluatorError, ServiceError
from safactory.evaluator.scoring_case import ScoringAnswer, ScoringCase
from safactory.evaluator.scoring_process import HEADER_BYTES
from safactory.evaluator.settings import EvaluatorSettings
from safactory.infra.health import counter, gauge

STARTED = counter("evaluator_processes_started", "Scoring processes started")
KILLED = counter("evaluator_processes_lost", "Scoring processes that were lost, by cause", "why")
BUSY = gauge("evaluator_busy_processes", "Scoring processes at work")

START_TIMEOUT_S = 60.0


class ScoringProcess:
    """The evaluator's handle on one scoring process."""

    def __init__(self, memory_bytes_max: int, home: Path) -> None:
        self.sessions = 0
        """Cases that it was given."""
        home.mkdir(parents=True, exist_ok=True)
        STARTED.inc()
        self._ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-P", "-m", "safactory.evaluator.scoring_process", str(theirs.fileno())]
            # Evaluators are code from the environments' folders: of the factory's secrets they see none.
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(home.absolute())}
            self._process = subprocess.Popen(
                [*argv, str(os.getpid()), str(memory_bytes_max)],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def start(self) -> None:
        """Return when it is ready for a case.

        Raises:
            ServiceError: it did not start.
        """
        self._reader, self._writer = await asyncio.open_connection(sock=self._ours)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._answer()
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            await self.kill()
            raise ServiceError(f"a scoring process did not start: {error!r}") from error

    async def score(self, case: ScoringCase) -> ScoringAnswer:
        """Give it a case and return its answer.

        Raises:
            EvaluatorError: it died over the case.
        """
        self.sessions += 1
        body = case.model_dump_json().encode()
        try:
            self._writer.write(len(body).to_bytes(HEADER_BYTES, "big") + body)
            await self._writer.drain()
            return await self._answer()
        except (OSError, asyncio.IncompleteReadError):
            KILLED.labels("died").inc()
            raise EvaluatorError(f"took its process down ({await self.kill()})") from None

    async def kill(self) -> str:
        """End it with all that it started, and say how it ended."""
        if self._process.returncode is None:
            # Not yet reaped, so the number still names this group, also when its leader has exited by itself.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        names = {number.value: number.name for number in signal.Signals}
        return names.get(-code, f"signal {-code}") if code < 0 else f"exit code {code}"

    async def _answer(self) -> ScoringAnswer:
        header = await self._reader.readexactly(HEADER_BYTES)
        body = await self._reader.readexactly(int.from_bytes(header, "big"))
        return ScoringAnswer.model_validate_json(body)


class ScoringPool:
    """So many scoring processes, started when they are first needed."""

    def __init__(self, settings: EvaluatorSettings) -> None:
        self._settings = settings
        self._idle: list[ScoringProcess] = []
        self._free = asyncio.Semaphore(settings.processes)
        self._all: set[ScoringProcess] = set()

    async def score(self, case: ScoringCase) -> tuple[ScoringAnswer, float]:
        """Score a case when a process is free; also return how long that took, in seconds, without the wait.

        Raises:
            EvaluatorError: the evaluator ran too long or took its process down.
            ServiceError: no process could be started.
        """
        async with self._free:
            process = self._idle.pop() if self._idle else await self._start()
            started_s = asyncio.get_running_loop().time()
            keep = False
            BUSY.inc()
            try:
                async with asyncio.timeout(case.timeout_s):
                    answer = await process.score(case)
                keep = process.sessions < self._settings.sessions_a_process and "MemoryError" not in answer.error
                return answer, asyncio.get_running_loop().time() - started_s
            except TimeoutError:
                KILLED.labels("timeout").inc()
                raise EvaluatorError(
                    f"was killed after {case.timeout_s:g} s: raise evaluation_timeout_s or mend it"
                ) from None
            finally:
                BUSY.dec()
                if keep:
                    self._idle.append(process)
                else:
                    await self._drop(process)

    async def end(self) -> None:
        """End every process."""
        self._idle.clear()
        for process in list(self._all):
            await self._drop(process)

    async def _start(self) -> ScoringProcess:
        process = ScoringProcess(self._settings.memory_bytes_max, self._settings.folder)
        self._all.add(process)
        try:
            await process.start()
        except BaseException:
            await self._drop(process)
            raise
        return process

    async def _drop(self, process: ScoringProcess) -> None:
        self._all.discard(process)
        await process.kill()
