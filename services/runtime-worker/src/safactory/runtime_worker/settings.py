"""Settings of the runtime-worker: `RUNTIME_WORKER_*`."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from safactory.infra.settings import ServiceSettings


def _worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _runner_path() -> str:
    return f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


class RuntimeWorkerSettings(ServiceSettings):
    """What a worker may be told."""

    model_config = SettingsConfigDict(env_prefix="RUNTIME_WORKER_", extra="ignore")

    scheduler: str = "127.0.0.1:7401"
    """host:port of the scheduler's gRPC server."""
    worker_id: str = Field(default_factory=_worker_id)
    """Unique among the living workers of a scheduler."""
    slots: int = Field(default=16, ge=1)
    """Sessions that run at once."""
    folder: Path = Path(".safactory/sessions")
    """Holds one folder a worker, which the worker makes and removes; in it, one folder a running session."""
    runner_path: str = Field(default_factory=_runner_path)
    """The PATH that runners get."""
    acquire_wait_s: float = Field(default=10.0, ge=0)
    """How long one request for leases may wait at the scheduler."""
    kill_grace_s: float = Field(default=2.0, ge=0)
    """Between SIGTERM at the deadline and SIGKILL."""
    warm_up_timeout_s: float = Field(default=60.0, gt=0)
    """A runner that takes longer to warm up is started plainly."""
    warm_parents_max: int = Field(default=8, ge=1)
    """Warm parents kept; above this the one that was idle longest ends."""
    snapshot_bytes_max: int = Field(default=16 * 1024 * 1024, ge=0)
    """Bytes of files in a working folder above which no snapshot is taken; 0 takes none at all."""
    shutdown_report_s: float = Field(default=3.0, gt=0)
    """How long a stopping worker tries to tell the scheduler what it killed."""
