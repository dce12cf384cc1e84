"""Metrics: numbers of a run that are worth keeping."""

from __future__ import annotations

from typing import ClassVar

from safactory.contracts.event import Event


class MetricsReported(Event):
    """Numbers of one moment of one run; names carry their unit (`_s`, `_bytes`, `_fraction`)."""

    type: ClassVar[str] = "metrics.reported"
    identified_by: ClassVar[tuple[str, ...]] = ("run_id", "source", "step")

    run_id: str
    source: str
    """The service that reports."""
    step: int
    values: dict[str, float]
