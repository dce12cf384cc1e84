"""Settings of dataelf."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from safactory.infra.settings import ServiceSettings


class DataelfSettings(ServiceSettings):
    """DATAELF_*."""

    model_config = SettingsConfigDict(env_prefix="DATAELF_", extra="ignore")

    flush_interval_s: float = 0.5
    """The longest that a record waits for its insert; a group is a rollout this much later."""
    flush_rows: int = 10_000
    """Rows that are inserted without waiting."""
    buffer_rows_max: int = 50_000
    """Above this nothing more is read until the archive has taken what is there."""
    keep_equal_rewards: bool = False
    """Whether a group whose samples all have the same reward, which teaches nothing, is a rollout all the same."""
