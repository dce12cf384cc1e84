"""`.env.example` lists every setting of every service, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_settings import BaseSettings

from safactory.dataelf.settings import DataelfSettings
from safactory.evaluator.settings import EvaluatorSettings
from safactory.gateway.settings import GatewaySettings
from safactory.inference.settings import InferenceSettings
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import ArchiveSettings, BusSettings, LogSettings, ObjectSettings
from safactory.runtime_worker.settings import RuntimeWorkerSettings
from safactory.scheduler.settings import SchedulerSettings
from safactory.trainer.settings import TrainerSettings

ROOT = Path(__file__).resolve().parents[2]
ALL: list[type[BaseSettings]] = [
    BusSettings,
    ObjectSettings,
    ArchiveSettings,
    LogSettings,
    TokenSettings,
    GatewaySettings,
    SchedulerSettings,
    RuntimeWorkerSettings,
    EvaluatorSettings,
    DataelfSettings,
    InferenceSettings,
    TrainerSettings,
]


def variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from variables(kind, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}"


@pytest.mark.parametrize("settings", ALL, ids=lambda settings: settings.__name__)
def test_every_setting_is_in_the_example(settings: type[BaseSettings]) -> None:
    listed = set(re.findall(r"^#? ?([A-Z][A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.M))
    prefix = str(settings.model_config.get("env_prefix", ""))
    expected = set(variables(settings, prefix))
    assert expected, "a settings model without fields would make this test say nothing"
    assert expected - listed == set()
    assert {name for name in listed if name.startswith(prefix)} - expected == set()
