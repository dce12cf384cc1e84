"""Wiring of the inference service: load the model, start the engine, serve OpenAI's HTTP and the weights' gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI
from pydantic import JsonValue

from safactory.contracts.errors import UpstreamError
from safactory.contracts.ids import WeightVersion
from safactory.inference.chat_routes import chat_routes
from safactory.inference.engine import Engine, EngineLimits, Served
from safactory.inference.model import Qwen3
from safactory.inference.model_config import ModelConfig
from safactory.inference.model_dir import digest_of, read_tensors
from safactory.inference.settings import InferenceSettings
from safactory.inference.tokenizer import ChatTokenizer
from safactory.inference.weights_service import WeightsService, start_weights_server
from safactory.infra.health import add_health, gauge


def make_engine(settings: InferenceSettings) -> Engine:
    """Load the model directory as version 0.0.

    Raises:
        ConfigError: the directory is not a model that this engine serves.
    """
    torch.set_num_threads(settings.threads)
    config = ModelConfig.read(settings.model_dir)
    tensors = read_tensors(settings.model_dir, config)
    model = Qwen3(config, tensors, getattr(torch, settings.dtype), settings.device)
    limits = EngineLimits(
        batch_max=settings.batch_max,
        queue_max=settings.queue_max,
        context_max=settings.context_max or config.max_position_embeddings,
    )
    served = Served(model, WeightVersion(), digest_of(tensors))
    return Engine(served, ChatTokenizer(settings.model_dir, config), limits, settings.device)


def create_app(settings: InferenceSettings) -> FastAPI:
    """Return the HTTP application; its lifespan owns the engine's thread and the gRPC server."""
    engine = make_engine(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        service = WeightsService(engine, settings.model_name, getattr(torch, settings.dtype), settings.device)
        server, app.state.grpc_port = await start_weights_server(service, settings.host, settings.grpc_port)
        yield
        await server.stop(grace=1.0)
        engine.stop()

    app = FastAPI(title="Safactory inference", lifespan=lifespan)
    app.state.engine = engine
    app.include_router(chat_routes(engine, settings.model_name))

    def engine_runs() -> None:
        if not engine.alive:
            raise UpstreamError("the engine's thread is not running", http_status=503)

    def facts() -> dict[str, JsonValue]:
        served = engine.served
        return {"model": settings.model_name, "weight_version": str(served.version), "digest": served.digest}

    add_health(app, {"engine": engine_runs}, facts)
    _measure(engine)
    return app


def _measure(engine: Engine) -> None:
    """Let /metrics read the engine's own counts, so that a step pays nothing for being measured."""
    gauge("inference_tokens_sampled", "Completion tokens sampled.").set_function(lambda: engine.tokens_sampled)
    gauge("inference_forward_passes", "Forward passes.").set_function(lambda: engine.forward_passes)
    gauge("inference_running", "Sequences that run.").set_function(lambda: engine.depth[0])
    gauge("inference_waiting", "Requests that wait.").set_function(lambda: engine.depth[1])
    gauge("inference_weight_swaps", "Weight versions committed.").set_function(lambda: engine.swaps)
    gauge("inference_weight_step", "Step of the served version.").set_function(lambda: engine.served.version.step)
