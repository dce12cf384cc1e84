"""The evaluator's application: wiring, and the three routes that every service has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI

from safactory.contracts.topics import SESSION, STEP
from safactory.evaluator.attempts import Attempts
from safactory.evaluator.inbox import make_inbox
from safactory.evaluator.scorers.factory import make_scorer
from safactory.evaluator.scoring import Scoring
from safactory.evaluator.settings import EvaluatorSettings
from safactory.infra.bus import Bus
from safactory.infra.consumer import Consumer
from safactory.infra.health import add_health
from safactory.infra.objects import make_objects
from safactory.infra.settings import BusSettings, ObjectSettings

SERVICE = "evaluator"


def create_app(settings: EvaluatorSettings, bus_settings: BusSettings, object_settings: ObjectSettings) -> FastAPI:
    """Put an evaluator together; its lifespan starts and stops it."""
    name = SERVICE if settings.replicas == 1 else f"{SERVICE}-{settings.replica}"
    bus = Bus(bus_settings, name)
    objects = make_objects(object_settings)
    attempts = Attempts()
    scoring = Scoring(attempts, make_scorer(settings), objects, bus.publish, settings.join_wait_s)
    consumer = Consumer(
        bus,
        SERVICE,
        [SESSION, STEP],
        make_inbox(attempts, scoring.wake),
        replica=(settings.replica, settings.replicas),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await bus.start()
        await consumer.start()
        working = asyncio.create_task(scoring.run(consumer.caught_up()), name="scoring")
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await scoring.end()
            await consumer.stop()
            await bus.stop()

    app = FastAPI(title="Safactory evaluator", lifespan=lifespan)
    add_health(app, {"bus": bus.check, "consumer": consumer.check, "objects": objects.check})
    return app
