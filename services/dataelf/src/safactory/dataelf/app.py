"""Wiring of dataelf: the bus into the archive, the archive to whoever asks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from safactory.contracts.errors import SafactoryError
from safactory.dataelf.house import House
from safactory.dataelf.routes.queries import query_routes
from safactory.dataelf.settings import DataelfSettings
from safactory.infra.bus import Bus
from safactory.infra.health import add_health
from safactory.infra.objects import make_objects
from safactory.infra.settings import ArchiveSettings, BusSettings, ObjectSettings


def create_app(
    settings: DataelfSettings,
    bus_settings: BusSettings,
    object_settings: ObjectSettings,
    archive_settings: ArchiveSettings,
) -> FastAPI:
    """Return the application; nothing is opened before its lifespan begins."""
    bus = Bus(bus_settings, f"dataelf-{settings.replica}")
    house = House(settings, archive_settings, bus, make_objects(object_settings))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await house.start()
        yield
        await house.stop()

    app = FastAPI(title="Safactory dataelf", lifespan=lifespan)
    add_health(app, {"bus": bus.check, "ingest": house.check, "objects": house.objects.check})
    app.include_router(query_routes(house))

    @app.exception_handler(SafactoryError)
    async def refused(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": {"type": type(error).__name__, "message": str(error)}}, status_code=503)

    return app
