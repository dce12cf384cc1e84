"""Settings: the only reader of the environment.

A service composes its own model from these parts; `.env.example` lists every variable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from safactory.contracts.topics import Topic


class ServiceSettings(BaseSettings):
    """What every service has; a subclass sets its own `env_prefix`."""

    model_config = SettingsConfigDict(extra="ignore")

    host: str = "127.0.0.1"
    port: int = 0
    """HTTP port; 0 picks a free one."""
    replica: int = Field(default=0, ge=0)
    """This process's number among `replicas`: it reads the partitions p with p % replicas == replica."""
    replicas: int = Field(default=1, ge=1)


class BusSettings(BaseSettings):
    """Where the Kafka-protocol broker is, and how long a publisher waits for it."""

    model_config = SettingsConfigDict(env_prefix="BUS_", extra="ignore")

    servers: str = "127.0.0.1:9092"
    """Bootstrap servers, comma-separated."""
    wal_dir: Path = Path(".safactory/wal")
    """Holds each publisher's write-ahead file while the broker is away."""
    publish_timeout_s: float = 5.0
    """After this an event goes to the write-ahead file instead."""
    partitions_max: int = Field(default=64, ge=1)
    """No topic gets more partitions than this; 1 suits an embedded broker, which is one process anyway."""
    linger_ms: int = 2
    idempotence: Literal["auto", "on", "off"] = "auto"
    """auto: on where the broker supports it."""
    topic_prefix: str = ""
    """Put before every topic name, so that tests can share a broker."""
    replication_factor: int = 1
    message_bytes_max: int = 1_000_000
    """The largest event; a broker takes a little more, for the headers. Payloads go by reference long before that."""
    poll_ms: int = 200
    """The longest a consumer waits for records before it looks at its other duties."""
    fetch_wait_ms: int = 25
    """How long the broker holds a fetch back for records; an embedded broker answers no sooner than half of it."""
    fetch_max: int = 500
    """Records handled between two commits at most."""
    handler_attempts: int = 3
    """Tries for a record whose handler fails in a way that no retry should help; then it is dead-lettered."""

    def partitions_of(self, topic: Topic) -> int:
        """Return how many partitions a topic has on this bus."""
        return min(topic.partitions, self.partitions_max)


class ObjectSettings(BaseSettings):
    """Where objects go."""

    model_config = SettingsConfigDict(env_prefix="OBJECTS_", extra="ignore")

    url: str = "file://.safactory/objects"
    """`file:///folder` (or `file://relative`), or `s3://bucket/prefix`."""
    s3_endpoint: str = "127.0.0.1:9000"
    s3_access_key: str = ""
    s3_secret_key: str = ""
    s3_region: str = "us-east-1"
    s3_secure: bool = False


class ArchiveSettings(BaseSettings):
    """Where the archive is."""

    model_config = SettingsConfigDict(env_prefix="ARCHIVE_", extra="ignore")

    url: str = Field(default_factory=lambda: f"chdb://{Path('.safactory/archive').absolute()}")
    """`chdb:///folder` for the embedded engine, `clickhouse://user:password@host:8123/database` for a server."""
    tenant: str = "default"


class LogSettings(BaseSettings):
    """How logs look."""

    model_config = SettingsConfigDict(env_prefix="LOG_", extra="ignore")

    level: str = "INFO"
    format: Literal["json", "text"] = "json"
