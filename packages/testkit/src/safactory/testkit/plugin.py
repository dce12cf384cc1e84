"""pytest fixtures: a real broker for the whole run, and a bus of its own for each test.

The embedded broker by default; the one named by SAFACTORY_TEST_KAFKA (host:port) when it is set, so that the same
flows run on Apache Kafka. Object store likewise: a folder, or the S3 server of SAFACTORY_TEST_S3.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from safactory.infra.bus import Bus
from safactory.infra.embedded_broker import broker_command
from safactory.infra.objects import Objects, make_objects
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.testkit.ports import free_port

START_S = 10.0


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap servers of a real broker."""
    given = os.environ.get("SAFACTORY_TEST_KAFKA")  # noqa: TID251
    if given:
        yield given
        return
    with embedded_broker() as servers:
        yield servers


@contextlib.contextmanager
def embedded_broker(port: int | None = None) -> Iterator[str]:
    """Run an embedded broker of one's own, e.g. to kill it."""
    port = port or free_port()
    process = subprocess.Popen(broker_command(port, f"test-{uuid.uuid4().hex[:8]}"))
    try:
        wait_for_port(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_for_port(port: int, timeout_s: float = START_S) -> None:
    """Return when somebody listens.

    Raises:
        RuntimeError: nobody does in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port} after {timeout_s:g} s")


@pytest.fixture
def bus_settings(broker: str, tmp_path: Path) -> BusSettings:
    """Settings whose topics are this test's own."""
    return BusSettings(servers=broker, wal_dir=tmp_path / "wal", topic_prefix=f"t{uuid.uuid4().hex[:8]}.", poll_ms=50)


@pytest_asyncio.fixture
async def bus(bus_settings: BusSettings) -> AsyncIterator[Bus]:
    """A started bus."""
    bus = Bus(bus_settings, "test")
    await bus.start()
    yield bus
    await bus.stop()


@pytest.fixture
def object_settings(tmp_path: Path) -> ObjectSettings:
    """A folder of this test's own, or a bucket on the given S3 server."""
    endpoint = os.environ.get("SAFACTORY_TEST_S3")  # noqa: TID251
    if endpoint:
        return ObjectSettings(
            url=f"s3://test-{uuid.uuid4().hex[:8]}",
            s3_endpoint=endpoint,
            s3_access_key="safactory",
            s3_secret_key="safactory-secret",
        )
    return ObjectSettings(url=f"file://{tmp_path}/objects")


@pytest_asyncio.fixture
async def objects(object_settings: ObjectSettings) -> Objects:
    """A usable object store."""
    store = make_objects(object_settings)
    await store.check()
    return store
