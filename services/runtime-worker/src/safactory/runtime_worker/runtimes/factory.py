"""`make_runtime()`: the runtime that a launch names."""

from __future__ import annotations

from safactory.runtime_worker.runtimes.base import Runtime
from safactory.runtime_worker.runtimes.process import ProcessRuntime
from safactory.runtime_worker.settings import RuntimeWorkerSettings
from safactory.runtime_worker.variables import base_variables
from safactory.runtime_worker.warm_pool import WarmPool

RUNTIMES = ("process",)
"""What this worker tells the scheduler that it offers; `LaunchSpec.runtime` allows no other."""


def make_runtime(settings: RuntimeWorkerSettings) -> Runtime:
    """Return the runtime for local processes."""
    pool = WarmPool(
        base_env=base_variables(settings.runner_path),
        parents_max=settings.warm_parents_max,
        warm_up_timeout_s=settings.warm_up_timeout_s,
    )
    return ProcessRuntime(pool, kill_grace_s=settings.kill_grace_s)
