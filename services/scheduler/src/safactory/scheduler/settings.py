"""Settings of the scheduler."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from safactory.infra.settings import ServiceSettings


class SchedulerSettings(ServiceSettings):
    """SCHEDULER_*."""

    model_config = SettingsConfigDict(env_prefix="SCHEDULER_", extra="ignore")

    grpc_port: int = 0
    """Serves `Leases` to workers."""
    gateway_url: str = "http://127.0.0.1:8080"
    """As runners reach it."""
    gateway_grpc: str = "127.0.0.1:8081"
    """Serves `Sessions`."""
    base_session_path: str = "/v1/sessions"
    lease_ttl_s: float = 15.0
    """Without a heartbeat for this long a lease is lost, and its session goes to another worker."""
    heartbeat_every_s: float = 4.0
    seal_drain_s: float = 5.0
    """How long the gateway waits for calls in flight when a session ends."""
    reward_wait_s: float = 120.0
    """From sealing to the score, queueing included, on top of the evaluation's own timeout."""
    retry_delay_s: float = 1.0
    """Between an attempt that failed and the second one; four times as long before the third."""
    tick_s: float = 0.5
    """Between two looks at deadlines."""
