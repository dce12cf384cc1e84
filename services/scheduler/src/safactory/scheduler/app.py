"""Wiring of the scheduler: HTTP for jobs, gRPC for workers, the bus for state."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc.aio
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError

from safactory.contracts.errors import BusError, SafactoryError
from safactory.contracts.rewards import RewardScored
from safactory.contracts.rollouts import RolloutDropped, RolloutReady
from safactory.contracts.rpc.v1 import leases_pb2_grpc
from safactory.contracts.topics import REWARD, ROLLOUT, WEIGHTS
from safactory.contracts.weights import WeightsPublished
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer, Delivery, Handler
from safactory.infra.health import add_health
from safactory.infra.objects import make_objects
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.infra.tasks import cancelled
from safactory.scheduler.admitter import Admitter
from safactory.scheduler.deadlines import Deadlines
from safactory.scheduler.finisher import Finisher
from safactory.scheduler.gateway_client import GatewayClient
from safactory.scheduler.handlers.reward_scored import reward_scored
from safactory.scheduler.handlers.rollout_dropped import rollout_dropped
from safactory.scheduler.handlers.rollout_ready import rollout_ready
from safactory.scheduler.handlers.weights_published import weights_published
from safactory.scheduler.job_book import JobBook
from safactory.scheduler.job_status import facts
from safactory.scheduler.journal import Journal
from safactory.scheduler.lease_book import LeaseBook
from safactory.scheduler.leases_rpc import LeasesServicer
from safactory.scheduler.rebuild import rebuild, take_up
from safactory.scheduler.routes.jobs import NotFound, job_routes, refused
from safactory.scheduler.settings import SchedulerSettings


def create_app(
    settings: SchedulerSettings, bus_settings: BusSettings, object_settings: ObjectSettings, tokens: TokenSettings
) -> FastAPI:
    """Return the application; nothing is opened before its lifespan begins.

    Raises:
        ConfigError: the key is missing.
    """
    secret = tokens.secret()
    bus = Bus(bus_settings, f"scheduler-{settings.replica}")
    objects = make_objects(object_settings)
    book = JobBook()
    journal = Journal(book, bus)
    leases = LeaseBook(settings.lease_ttl_s)
    gateway = GatewayClient(settings.gateway_grpc, settings.seal_drain_s)
    finisher = Finisher(journal, gateway, settings)
    admitter = Admitter(journal, objects, finisher)
    deadlines = Deadlines(journal, leases, admitter, finisher, settings.tick_s)
    rebuilt = asyncio.Event()

    consumer = Consumer(bus, "scheduler", [REWARD, ROLLOUT, WEIGHTS], _dispatch(finisher, admitter), start="beginning")
    servicer = LeasesServicer(settings, secret, journal, leases, finisher)

    async def live(server: grpc.aio.Server) -> None:
        await rebuild(bus, book)
        take_up(book, leases, finisher)
        await consumer.start()
        await consumer.caught_up()
        # A worker that asks before the leases are known again would be told to stop all that it does.
        await server.start()
        rebuilt.set()
        await deadlines.run()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await bus.start()
        await gateway.start()
        server = grpc.aio.server()
        leases_pb2_grpc.add_LeasesServicer_to_server(servicer, server)
        server.add_insecure_port(f"{settings.host}:{settings.grpc_port}")
        living = asyncio.create_task(live(server), name="scheduler")
        yield
        await server.stop(1)
        await cancelled(living)
        await finisher.stop()
        await consumer.stop()
        await gateway.stop()
        await bus.stop()

    def state_is_whole() -> None:
        if not rebuilt.is_set():
            raise BusError("the state is being rebuilt from the bus")

    app = FastAPI(title="Safactory scheduler", lifespan=lifespan)
    checks = {"bus": bus.check, "state": state_is_whole, "objects": objects.check}
    add_health(app, checks, lambda: facts(leases, len(book.jobs)))
    app.include_router(job_routes(journal, objects, admitter, leases), dependencies=[Depends(state_is_whole)])
    for error in (SafactoryError, NotFound, RequestValidationError):
        app.add_exception_handler(error, refused)
    return app


def _dispatch(finisher: Finisher, admitter: Admitter) -> Handler:
    async def handle(delivery: Delivery) -> None:
        event = delivery.event
        if isinstance(event, RewardScored):
            await reward_scored(event, finisher)
        elif isinstance(event, RolloutReady):
            await rollout_ready(event, admitter)
        elif isinstance(event, RolloutDropped):
            await rollout_dropped(event, admitter)
        elif isinstance(event, WeightsPublished):
            await weights_published(event, admitter)

    return handle
