"""Weights: which version is served where."""

from __future__ import annotations

from typing import ClassVar

from safactory.contracts.event import Event
from safactory.contracts.ids import WeightVersion


class WeightsPublished(Event):
    """A version was verified and committed on every replica that is not quarantined."""

    type: ClassVar[str] = "weights.published"
    identified_by: ClassVar[tuple[str, ...]] = ("model", "version", "run_id")

    model: str
    version: WeightVersion
    run_id: str
    """The training job."""
    digest: str
    step: int
    """Optimiser steps of this run so far."""
    bytes: int
    push_s: float
    """From prepare to the last commit."""
    committed: list[str]
    """gRPC addresses of the replicas that serve it."""
    quarantined: list[str]
    """Those that failed and must not be routed to."""
    checkpoint: str = ""
    """Where the same weights lie on disk; empty when this version was not checkpointed."""
