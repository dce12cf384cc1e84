"""Settings of the evaluator: `EVALUATOR_*`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from safactory.infra.settings import ServiceSettings


class EvaluatorSettings(ServiceSettings):
    """What an evaluator may be told."""

    model_config = SettingsConfigDict(env_prefix="EVALUATOR_", extra="ignore")

    folder: Path = Path(".safactory/scoring")
    """What evaluators see as HOME: their libraries keep caches there."""
    processes: int = Field(default=2, ge=1)
    """Sessions that are scored at once."""
    join_wait_s: float = Field(default=30.0, gt=0)
    """How long a sealed session may lack a step or other record before it is reported as impossible to score."""
    memory_bytes_max: int = Field(default=4 * 1024**3, ge=256 * 1024**2)
    """Address space of one scoring process."""
    sessions_a_process: int = Field(default=1000, ge=1)
    """A scoring process is replaced after so many, so that a leak in an evaluator's code stays small."""
