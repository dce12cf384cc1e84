"""Identities: job → group → session → (attempt, seq), and the ids that are derived from them.

Derived ids make a repeated fact the same fact: the same event always has the same id, and two different prompts
can never share a group.
"""

from __future__ import annotations

import functools
import os
import time
import uuid

from pydantic import BaseModel, ConfigDict

NAMESPACE = uuid.UUID("6f1d3f0e-5f0c-5c8e-9a55-0d7a5afac702")
"""Root of every uuid5 in Safactory."""


def new_session_id(now_ms: int | None = None) -> str:
    """Return a UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random, so ids sort by creation time."""
    ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    value = (ms & (2**48 - 1)) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def derived_id(*parts: str | int) -> str:
    """Return the uuid5 of the parts; equal parts give equal ids, and `("a|b",)` never equals `("a", "b")`."""
    return str(uuid.uuid5(NAMESPACE, "|".join(f"{len(str(part))}:{part}" for part in parts)))


def group_id_of(job_id: str, environment_index: int, dataset_digest: str, row: int, epoch: int) -> str:
    """Return the group of one dataset row in one pass over the dataset (epoch counts from 0)."""
    return derived_id("group", job_id, environment_index, dataset_digest, row, epoch)


@functools.total_ordering
class WeightVersion(BaseModel):
    """Which weights produced a token: monotone over restarts, ordered by epoch, then step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int = 0
    """Grows when a trainer starts from a checkpoint older than what it had published."""
    step: int = 0
    """Optimiser steps since the initial weights."""

    def __str__(self) -> str:
        return f"{self.epoch}.{self.step}"

    def __lt__(self, other: WeightVersion) -> bool:
        return (self.epoch, self.step) < (other.epoch, other.step)

    @classmethod
    def parse(cls, text: str) -> WeightVersion:
        """Read "epoch.step".

        Raises:
            ValueError: the text has another form.
        """
        epoch, dot, step = text.partition(".")
        if not dot:
            raise ValueError(f"weight version {text!r} is not of the form epoch.step")
        return cls(epoch=int(epoch), step=int(step))


class VersionSpan(BaseModel):
    """Completion tokens [start, end) were sampled from `version`; positions count from the first sampled token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    start: int
    end: int
