"""Seed models and engines on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import torch

from safactory.inference.app import make_engine
from safactory.inference.engine import Engine
from safactory.inference.seed_model import write_seed_model
from safactory.inference.settings import InferenceSettings


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Weights far from zero, so that every part of the model moves the logits.
    folder = tmp_path_factory.mktemp("model")
    write_seed_model(folder, seed=7, init_std=0.15)
    return folder


@pytest.fixture
def settings(model_dir: Path) -> InferenceSettings:
    return InferenceSettings(model_dir=model_dir, port=0, grpc_port=0)


@pytest.fixture
def make_started(settings: InferenceSettings) -> Iterator[Callable[..., Engine]]:
    started: list[Engine] = []

    def make(**changes: object) -> Engine:
        engine = make_engine(settings.model_copy(update=changes))
        engine.start()
        started.append(engine)
        return engine

    yield make
    for engine in started:
        engine.stop()


@pytest.fixture
async def engine(make_started: Callable[..., Engine]) -> AsyncIterator[Engine]:
    yield make_started()
