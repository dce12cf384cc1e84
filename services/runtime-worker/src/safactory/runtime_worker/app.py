"""The worker's application: wiring, and the three routes that every service has."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from safactory.infra.bus import Bus
from safactory.infra.health import add_health
from safactory.infra.objects import make_objects
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.runtime_worker.episode import EpisodeRunner
from safactory.runtime_worker.lease_loop import LeaseLoop
from safactory.runtime_worker.runtimes.factory import make_runtime
from safactory.runtime_worker.scheduler_client import SchedulerClient
from safactory.runtime_worker.session_folder import WorkerFolder
from safactory.runtime_worker.settings import RuntimeWorkerSettings

SERVICE = "runtime-worker"


def create_app(settings: RuntimeWorkerSettings, bus_settings: BusSettings, object_settings: ObjectSettings) -> FastAPI:
    """Put a worker together; its lifespan starts it, and stops it with every runner."""
    bus = Bus(bus_settings, f"{SERVICE}-{settings.worker_id}")
    objects = make_objects(object_settings)
    client = SchedulerClient(settings.scheduler, settings.worker_id)
    folders = WorkerFolder(settings.folder, settings.worker_id)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        folders.make()
        await client.start()
        runtime = make_runtime(settings)
        loop = LeaseLoop(client, EpisodeRunner(runtime, folders, objects, bus, settings).run, settings)
        await bus.start()
        await loop.start()
        try:
            yield
        finally:
            await loop.stop()
            await runtime.end()
            await client.close()
            await bus.stop()
            folders.remove()

    app = FastAPI(title="Safactory runtime-worker", lifespan=lifespan)
    add_health(app, {"bus": bus.check, "objects": objects.check, "scheduler": client.check})
    return app
