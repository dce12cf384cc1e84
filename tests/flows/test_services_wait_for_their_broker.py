"""A broker that is away: services start, say what is missing, and go on when it comes; what was taken is not lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from safactory.dataelf.app import create_app as create_dataelf
from safactory.dataelf.settings import DataelfSettings
from safactory.evaluator.app import create_app as create_evaluator
from safactory.evaluator.settings import EvaluatorSettings
from safactory.infra.bus import Bus
from safactory.infra.settings import ArchiveSettings, BusSettings, ObjectSettings
from safactory.testkit import builders
from safactory.testkit.app_server import served
from safactory.testkit.plugin import embedded_broker
from safactory.testkit.ports import free_port

WAIT_S = 40.0


def settings(port: int, folder: Path) -> BusSettings:
    return BusSettings(servers=f"127.0.0.1:{port}", wal_dir=folder, poll_ms=50)


async def readiness(url: str) -> httpx.Response:
    return await asyncio.to_thread(httpx.get, f"{url}/readyz")


async def until_answered(url: str, status: int) -> Any:
    deadline = time.monotonic() + WAIT_S
    while (response := await asyncio.to_thread(httpx.get, url)).status_code != status:
        assert time.monotonic() < deadline, response.text
        await asyncio.sleep(0.1)
    return response.json()


async def test_services_that_start_without_a_broker_say_so_and_go_on_when_it_comes(
    tmp_path: Path, object_settings: ObjectSettings
) -> None:
    port = free_port()
    archive = ArchiveSettings(url=f"chdb://{tmp_path}/archive")
    dataelf_bus = settings(port, tmp_path / "dataelf")
    dataelf = create_dataelf(DataelfSettings(flush_interval_s=0.05), dataelf_bus, object_settings, archive)
    evaluator = create_evaluator(EvaluatorSettings(), settings(port, tmp_path / "evaluator"), object_settings)
    async with (
        served(dataelf, until_ready=False) as dataelf_url,
        served(evaluator, until_ready=False) as evaluator_url,
    ):
        for url in (dataelf_url, evaluator_url):
            answer = await readiness(url)
            assert answer.status_code == 503
            assert f"127.0.0.1:{port}" in answer.json()["not_ready"]["bus"]
        with embedded_broker(port):
            for url in (dataelf_url, evaluator_url):
                assert (await until_answered(f"{url}/readyz", 200))["status"] == "ready"
            bus = Bus(settings(port, tmp_path / "writer"), "writer")
            await bus.start()
            await bus.publish(builders.a_session_ended())
            await until_answered(f"{dataelf_url}/v1/sessions/{builders.SESSION}", 200)
            await bus.stop()


async def test_what_is_published_while_the_broker_is_away_arrives_when_it_comes(
    tmp_path: Path, object_settings: ObjectSettings
) -> None:
    port = free_port()
    waiting = settings(port, tmp_path / "writer").model_copy(update={"publish_timeout_s": 0.5})
    bus = Bus(waiting, "writer")
    await bus.start()
    await bus.publish(builders.a_session_ended())
    archive = ArchiveSettings(url=f"chdb://{tmp_path}/archive")
    dataelf_bus = settings(port, tmp_path / "dataelf")
    dataelf = create_dataelf(DataelfSettings(flush_interval_s=0.05), dataelf_bus, object_settings, archive)
    async with served(dataelf, until_ready=False) as url:
        with embedded_broker(port):
            view = await until_answered(f"{url}/v1/sessions/{builders.SESSION}", 200)
            await bus.stop()
    assert [event["type"] for event in view["events"]] == ["session.ended"]
