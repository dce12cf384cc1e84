"""`StagedWeights`: a version on its way in: announced by a manifest, filled in chunks, then verified by digest.

Owns its own memory and touches nothing that is served. Guarantees: every tensor of the model exactly once, every byte
in order, no more bytes than announced, and a digest that was computed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from safactory.contracts.errors import WeightsError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.rpc.v1 import weights_pb2
from safactory.contracts.weight_manifest import manifest_digest
from safactory.inference.model import check_names
from safactory.inference.model_config import ModelConfig
from safactory.inference.model_dir import DTYPE_OF


@dataclass(frozen=True)
class Verification:
    """What hashing the staged bytes showed."""

    match: bool
    digest: str
    """Of what was received."""
    mismatched: list[str]


class StagedWeights:
    """The tensors of one announced version."""

    def __init__(self, manifest: weights_pb2.Manifest, config: ModelConfig) -> None:
        """Check the manifest and make room for it.

        Raises:
            WeightsError: the manifest does not describe this model, or contradicts itself.
        """
        _check_manifest(manifest, config)
        self.version = WeightVersion(epoch=manifest.version.epoch, step=manifest.version.step)
        self.manifest = manifest
        self.verified_digest = ""
        """Empty until `verify` has found a match."""
        self._buffers = {entry.name: bytearray(entry.bytes) for entry in manifest.tensors}
        self._filled = dict.fromkeys(self._buffers, 0)
        self._sealed = False

    @property
    def received_bytes(self) -> int:
        """Bytes that have come so far."""
        return sum(self._filled.values())

    @property
    def missing_bytes(self) -> int:
        """Bytes that were announced and have not come."""
        return sum(map(len, self._buffers.values())) - self.received_bytes

    @property
    def received_tensors(self) -> int:
        """Tensors that are whole."""
        return sum(filled == len(self._buffers[name]) for name, filled in self._filled.items())

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Take one chunk.

        Raises:
            WeightsError: the tensor is not in the manifest, or the chunk does not continue it.
        """
        if self._sealed:
            raise WeightsError(f"version {self.version} has been verified; prepare it again to send more")
        if name not in self._buffers:
            raise WeightsError(f"tensor {name!r} is not in the manifest")
        filled, size = self._filled[name], len(self._buffers[name])
        if offset != filled or filled + len(data) > size or not data:
            end = offset + len(data)
            raise WeightsError(f"tensor {name}: chunk [{offset}, {end}) does not continue {filled} of {size} bytes")
        self._buffers[name][offset : offset + len(data)] = data
        self._filled[name] = filled + len(data)

    def verify(self) -> Verification:
        """Hash what was received and compare it with the manifest; slow for a large model, and ends writing."""
        # What is written after its hash was taken would be served unverified.
        self._sealed = True
        received = []
        for entry in self.manifest.tensors:
            actual = weights_pb2.TensorEntry()
            actual.CopyFrom(entry)
            filled = memoryview(self._buffers[entry.name])[: self._filled[entry.name]]
            actual.sha256 = hashlib.sha256(filled).hexdigest()
            received.append(actual)
        pairs = zip(received, self.manifest.tensors, strict=True)
        mismatched = [
            announced.name
            for actual, announced in pairs
            if actual.sha256 != announced.sha256 or self._filled[announced.name] != announced.bytes
        ]
        digest = manifest_digest(received)
        match = not mismatched and digest == self.manifest.digest
        self.verified_digest = digest if match else ""
        return Verification(match, digest, mismatched)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors, over the staged bytes."""
        return {
            entry.name: torch.frombuffer(self._buffers[entry.name], dtype=DTYPE_OF[entry.dtype]).view(*entry.shape)
            for entry in self.manifest.tensors
        }


def _check_manifest(manifest: weights_pb2.Manifest, config: ModelConfig) -> None:
    names = [entry.name for entry in manifest.tensors]
    if len(set(names)) != len(names):
        raise WeightsError(f"the manifest names a tensor twice: {sorted(n for n in set(names) if names.count(n) > 1)}")
    check_names(config, {entry.name: tuple(entry.shape) for entry in manifest.tensors})
    for entry in manifest.tensors:
        if entry.dtype not in DTYPE_OF:
            raise WeightsError(f"tensor {entry.name} is {entry.dtype}; taken are {sorted(DTYPE_OF)}")
        size = DTYPE_OF[entry.dtype].itemsize
        for extent in entry.shape:
            size *= extent
        if size != entry.bytes:
            raise WeightsError(f"tensor {entry.name} is announced with {entry.bytes} bytes, its shape needs {size}")
    if manifest_digest(manifest.tensors) != manifest.digest:
        raise WeightsError("the manifest's digest is not that of its tensors")
