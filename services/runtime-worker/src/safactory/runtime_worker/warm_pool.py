"""`WarmPool`: which parent a runner is forked from.

One warm parent for each (runner file as it is now, environment of its launch), and one plain parent for all runners
that offer no `warm_up()`, cannot be warmed up, or are not started as `{python} <runner file>`. A parent that died is
replaced; one whose runner file was edited ends when its last runner has.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safactory.contracts.errors import ServiceError
from safactory.contracts.runner import LaunchSpec
from safactory.infra.health import counter
from safactory.runtime_worker.runner_parent import RunnerParent

logger = logging.getLogger(__name__)

PARENTS = counter("runtime_worker_parents", "Parent processes started, by kind", "kind")
UNFIT = counter("runtime_worker_warm_refused", "Runner files that offer warm_up() but could not be warmed up")

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
"""Numeric libraries start threads on import, and a process with threads must not fork."""


class Warmth(NamedTuple):
    """What one warm parent is warm for."""

    runner_path: str
    env: tuple[tuple[str, str], ...]
    mtime_ns: int
    size_bytes: int


class WarmPool:
    """The parents of one worker."""

    def __init__(self, *, base_env: Mapping[str, str], parents_max: int, warm_up_timeout_s: float) -> None:
        self._base_env = dict(base_env)
        self._parents_max = parents_max
        self._warm_up_timeout_s = warm_up_timeout_s
        self._warm: dict[Warmth, asyncio.Task[RunnerParent]] = {}
        """Least recently used first."""
        self._unfit: set[Warmth] = set()
        self._offers: dict[Warmth, bool] = {}
        self._plain: asyncio.Task[RunnerParent] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def parent_for(self, launch: LaunchSpec) -> RunnerParent:
        """Return a parent that is ready, warm for this launch if it can be.

        Raises:
            ServiceError: no parent could be started.
        """
        warmth = self._warmth(launch)
        if warmth is not None:
            try:
                return await self._warm_parent(warmth)
            except ServiceError as error:
                logger.warning("%s is started plainly from now on: %s", launch.runner_path, error)
                UNFIT.inc()
                self._unfit.add(warmth)
                self._warm.pop(warmth, None)
        return await self._plain_parent()

    async def end(self) -> None:
        """End every parent, and with them every runner."""
        tasks = [*self._warm.values(), *([self._plain] if self._plain else [])]
        self._warm.clear()
        self._plain = None
        parents = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(parent.end() for parent in parents if isinstance(parent, RunnerParent)), *self._ending)

    async def _warm_parent(self, warmth: Warmth) -> RunnerParent:
        task = self._warm.pop(warmth, None)
        if task is None or _is_dead(task):
            self._make_room(warmth)
            task = asyncio.create_task(self._start("warm", warmth.runner_path, dict(warmth.env)))
        self._warm[warmth] = task
        return await asyncio.shield(task)

    async def _plain_parent(self) -> RunnerParent:
        if self._plain is None or _is_dead(self._plain):
            self._plain = asyncio.create_task(self._start("plain", "", {}))
        return await asyncio.shield(self._plain)

    async def _start(self, kind: str, runner_path: str, env: Mapping[str, str]) -> RunnerParent:
        PARENTS.labels(kind).inc()
        parent = RunnerParent(runner_path, {**self._base_env, **ONE_THREAD, **env})
        await parent.ready(self._warm_up_timeout_s)
        return parent

    def _make_room(self, wanted: Warmth) -> None:
        stale = [old for old in self._warm if old[:2] == wanted[:2]]
        excess = max(0, len(self._warm) + 1 - len(stale) - self._parents_max)
        idle = [old for old, task in self._warm.items() if old not in stale and _is_idle(task)]
        for old in [*stale, *idle[:excess]]:
            ending = asyncio.create_task(_end_when_idle(self._warm.pop(old)))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _warmth(self, launch: LaunchSpec) -> Warmth | None:
        path = Path(launch.runner_path)
        if not launch.warm or not is_plain_python(launch):
            return None
        try:
            stat = path.stat()
        except OSError:
            return None
        warmth = Warmth(str(path), tuple(sorted(launch.env.items())), stat.st_mtime_ns, stat.st_size)
        if warmth not in self._offers:
            self._offers[warmth] = offers_warm_up(path)
        return warmth if self._offers[warmth] and warmth not in self._unfit else None


def argv_of(launch: LaunchSpec) -> list[str]:
    """Return a launch's command with the interpreter and the runner's absolute path filled in."""
    python, name = sys.executable, Path(launch.runner_path).name
    texts = [part.replace("{python}", python).replace("{runner}", launch.runner_path) for part in launch.command]
    return [launch.runner_path if part in (name, f"./{name}") else part for part in texts]


def is_plain_python(launch: LaunchSpec) -> bool:
    """Whether a command is the interpreter, the runner's file, and its arguments: what a warm fork can stand for."""
    return launch.command[0] == "{python}" and argv_of(launch)[1:2] == [launch.runner_path]


def require_runner(launch: LaunchSpec) -> None:
    """Return when the runner's file is there.

    Raises:
        ServiceError: this worker does not see it.
    """
    if not Path(launch.runner_path).is_file():
        raise ServiceError(f"the runner {launch.runner_path} is not there: does this worker see its folder?")


def offers_warm_up(path: Path) -> bool:
    """Whether a file defines `warm_up` and `main` at its top level, judged without running it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return {"warm_up", "main"} <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _is_dead(task: asyncio.Task[RunnerParent]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None or not task.result().alive)


def _is_idle(task: asyncio.Task[RunnerParent]) -> bool:
    return task.done() and (_is_dead(task) or task.result().idle)


async def _end_when_idle(task: asyncio.Task[RunnerParent]) -> None:
    try:
        parent = await task
    except ServiceError:
        return
    idle = False
    while parent.alive and not idle:
        # The wait comes first: whoever was given this parent a moment ago spawns within this turn of the loop.
        await asyncio.sleep(0.2)
        idle = parent.idle
    await parent.end()
