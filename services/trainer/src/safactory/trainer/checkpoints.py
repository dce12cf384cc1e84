"""`Checkpoints`: everything that a restart needs, in one folder a version.

A checkpoint holds the weights as a Hugging Face directory, the optimiser, and what of the bus has been consumed:
offsets and groups belong to the weights that they made, so that a restart trains on no group twice and loses none.
Guarantees: a checkpoint is whole or not there. It is written beside its place, synced, renamed, and only then named
in `latest`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save_file

from safactory.contracts.errors import ConfigError
from safactory.contracts.ids import WeightVersion
from safactory.trainer.policy import Policy

LATEST = "latest"
STATE = "trainer.json"
OPTIMISER = "optimiser.pt"
WEIGHTS = "model.safetensors"


class TrainerState(BaseModel):
    """What the trainer knows besides tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: WeightVersion
    run: tuple[str, int] = ("", 0)
    """The job that made the last step, and its steps so far."""
    offsets: dict[str, dict[int, int]] = Field(default_factory=dict)
    """Topic → partition → the lowest offset that is not done."""
    consumed: list[str] = Field(default_factory=list)
    """Groups that were taken or dropped; those above the offsets are read again and must be known."""
    steps_done: dict[str, int] = Field(default_factory=dict)
    """Optimiser steps of every job."""


class Checkpoints:
    """The checkpoints of one trainer."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def latest(self) -> Path | None:
        """Return the newest whole checkpoint; it can be loaded as a Hugging Face directory."""
        marker = self._folder / LATEST
        return self._folder / marker.read_text().strip() if marker.is_file() else None

    def read_state(self, checkpoint: Path) -> TrainerState:
        """Return what the trainer knew.

        Raises:
            ConfigError: the file is missing or of another release.
        """
        path = checkpoint / STATE
        try:
            return TrainerState.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"unreadable checkpoint: {error}", file=str(path)) from error

    def restore_optimiser(self, checkpoint: Path, policy: Policy) -> None:
        """Put the optimiser's moments where they were; its settings are today's."""
        state: dict[str, Any] = policy.optimiser.state_dict()
        state["state"] = torch.load(checkpoint / OPTIMISER, weights_only=True, map_location="cpu")
        policy.optimiser.load_state_dict(state)

    def write(self, policy: Policy, state: TrainerState, model_dir: Path) -> Path:
        """Make a checkpoint durable and return it; `model_dir` gives the configuration and the tokenizer."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / f"version-{state.version}"
        beside = self._folder / f".{place.name}.partial"
        for old in (beside, place):
            shutil.rmtree(old, ignore_errors=True)
        beside.mkdir()
        for file in model_dir.iterdir():
            if file.is_file() and file.suffix in (".json", ".jinja", ".txt") and not _is_weights(file):
                shutil.copyfile(file, beside / file.name)
        save_file(policy.tensors(), beside / WEIGHTS, metadata={"format": "pt"})
        torch.save(policy.optimiser.state_dict()["state"], beside / OPTIMISER)
        (beside / STATE).write_text(state.model_dump_json())
        for file in beside.iterdir():
            _sync(file)
        _sync(beside)
        beside.rename(place)
        self._mark(place)
        self._prune(place)
        return place

    def _mark(self, place: Path) -> None:
        partial = self._folder / f".{LATEST}.partial"
        partial.write_text(place.name)
        _sync(partial)
        partial.replace(self._folder / LATEST)
        _sync(self._folder)

    def _prune(self, newest: Path) -> None:
        others = [path for path in self._folder.glob("version-*") if path != newest]
        others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in others[self._keep - 1 :]:
            shutil.rmtree(path)


def _is_weights(file: Path) -> bool:
    return file.name in (STATE, "model.safetensors.index.json")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
