"""Wiring of the gateway: HTTP for agents, gRPC for the scheduler, the bus for everything that happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc.aio
from fastapi import FastAPI
from pydantic import JsonValue

from safactory.contracts.errors import BusError
from safactory.contracts.rpc.v1 import sessions_pb2_grpc
from safactory.gateway.admission import Admission
from safactory.gateway.gate import Gate
from safactory.gateway.handlers.weights_published import WeightsSubscription
from safactory.gateway.rebuild import rebuild
from safactory.gateway.relay import Relay
from safactory.gateway.route_table import RouteTable
from safactory.gateway.routes.llm_routes import llm_routes
from safactory.gateway.routes.sessions import session_routes
from safactory.gateway.sealing import Sealing
from safactory.gateway.session_book import SessionBook
from safactory.gateway.sessions_rpc import SessionsServicer
from safactory.gateway.settings import GatewaySettings, load_routes
from safactory.infra.bus import Bus
from safactory.infra.health import add_health
from safactory.infra.objects import make_objects
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.infra.tasks import cancelled


def create_app(
    settings: GatewaySettings, bus_settings: BusSettings, object_settings: ObjectSettings, tokens: TokenSettings
) -> FastAPI:
    """Return the application; nothing is opened before its lifespan begins.

    Raises:
        ConfigError: the routes or the key are missing or wrong.
    """
    routes = RouteTable(load_routes(settings.config))
    bus = Bus(bus_settings, f"gateway-{settings.replica}")
    objects = make_objects(object_settings)
    book = SessionBook(settings.session_ttl_s)
    gate = Gate(
        settings=settings,
        book=book,
        routes=routes,
        admission=Admission(settings, tokens.secret()),
        relay=Relay(settings, book, bus, objects),
        sealing=Sealing(book, bus),
    )
    weights = WeightsSubscription(bus_settings, routes)

    async def rebuild_book() -> None:
        await rebuild(bus, book)
        gate.admission.starting = False

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await bus.start()
        await gate.relay.start()
        await weights.start()
        rebuilding = asyncio.create_task(rebuild_book(), name="rebuild")
        server = grpc.aio.server()
        sessions_pb2_grpc.add_SessionsServicer_to_server(SessionsServicer(gate.sealing), server)
        server.add_insecure_port(f"{settings.host}:{settings.grpc_port}")
        await server.start()
        yield
        gate.admission.draining = True
        await server.stop(2)
        await cancelled(rebuilding)
        await weights.stop()
        await gate.relay.stop()
        await bus.stop()

    def session_book_is_whole() -> None:
        if gate.admission.starting:
            raise BusError("sessions are being rebuilt from the bus")

    def facts() -> dict[str, JsonValue]:
        return {"storage_type": "archive", "storage_config": {}, "max_steps": -1, "routes": list(routes.names)}

    app = FastAPI(title="Safactory gateway", lifespan=lifespan)
    add_health(app, {"bus": bus.check, "sessions": session_book_is_whole, "objects": objects.check}, facts)
    app.include_router(session_routes(gate))
    app.include_router(llm_routes(gate))
    return app
