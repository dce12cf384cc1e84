"""Settings out of the environment, and foreign errors as ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pydantic
import pytest

from safactory.contracts.errors import ArchiveError, BusError, ConfigError, ObjectError, SafactoryError
from safactory.infra.boundary import boundary
from safactory.infra.settings import ArchiveSettings, BusSettings, LogSettings, ObjectSettings, ServiceSettings


def test_each_setting_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "BUS_SERVERS": "kafka:9092", "BUS_WAL_DIR": "/wal", "BUS_PUBLISH_TIMEOUT_S": "0.5", "BUS_IDEMPOTENCE": "on",
        "OBJECTS_URL": "s3://b/p", "OBJECTS_S3_SECURE": "true", "ARCHIVE_URL": "clickhouse://h", "LOG_FORMAT": "text",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    bus, objects = BusSettings(), ObjectSettings()
    assert (bus.servers, bus.wal_dir, bus.publish_timeout_s, bus.idempotence) == ("kafka:9092", Path("/wal"), 0.5, "on")
    assert (objects.url, objects.s3_secure) == ("s3://b/p", True)
    assert (ArchiveSettings().url, LogSettings().format) == ("clickhouse://h", "text")


def test_what_is_given_in_code_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUS_SERVERS", "kafka:9092")
    assert BusSettings(servers="other:1").servers == "other:1"


@pytest.mark.parametrize(
    ("name", "value"), [("BUS_IDEMPOTENCE", "maybe"), ("BUS_PUBLISH_TIMEOUT_S", "soon"), ("LOG_FORMAT", "xml")]
)
def test_a_wrong_value_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    kind = BusSettings if name.startswith("BUS") else LogSettings
    with pytest.raises(pydantic.ValidationError, match=name.partition("_")[2].lower()):
        kind()


@pytest.mark.parametrize(("replica", "replicas"), [(-1, 1), (0, 0)])
def test_a_replica_number_that_cannot_be_is_refused(replica: int, replicas: int) -> None:
    with pytest.raises(pydantic.ValidationError):
        ServiceSettings(replica=replica, replicas=replicas)


def test_a_foreign_error_becomes_ours_with_its_cause() -> None:
    with pytest.raises(ArchiveError, match="insert: KeyError: 'x'") as caught, boundary(ArchiveError, "insert"):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [BusError("b"), ConfigError("c")])
def test_our_own_error_passes_unchanged(error: SafactoryError) -> None:
    with pytest.raises(type(error)) as caught, boundary(ObjectError, "put"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_an_order_to_stop_is_no_failure(error: type[BaseException]) -> None:
    with pytest.raises(error), boundary(ObjectError, "put"):
        raise error
