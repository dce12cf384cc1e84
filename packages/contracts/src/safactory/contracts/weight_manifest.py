"""The digest of a weight manifest: one spelling for the trainer that sends and every server that checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from safactory.contracts.rpc.v1 import weights_pb2


def manifest_digest(tensors: Iterable[weights_pb2.TensorEntry]) -> str:
    """Return the hex sha256 of the sorted lines name:dtype:shape:sha256, newlines included; a shape reads "64x16"."""
    lines = sorted(f"{t.name}:{t.dtype}:{'x'.join(map(str, t.shape))}:{t.sha256}\n" for t in tensors)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
