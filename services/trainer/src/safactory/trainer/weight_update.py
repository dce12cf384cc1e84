"""`WeightUpdate`: one version of the weights as it is sent: a manifest, and every tensor's bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from safactory.contracts.ids import WeightVersion
from safactory.contracts.rpc.v1 import weights_pb2
from safactory.contracts.weight_manifest import manifest_digest

CHUNK_BYTES = 1024 * 1024
"""Below gRPC's default limit of 4 MiB a message."""
_NAME_OF = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


class WeightUpdate:
    """The tensors are read while they are sent: nothing may train meanwhile."""

    def __init__(self, model: str, version: WeightVersion, tensors: Mapping[str, Tensor]) -> None:
        self.version = version
        self._bytes = {name: _bytes_of(tensor) for name, tensor in tensors.items()}
        entries = [
            weights_pb2.TensorEntry(
                name=name,
                dtype=_NAME_OF[tensor.dtype],
                shape=tensor.shape,
                bytes=len(self._bytes[name]),
                sha256=hashlib.sha256(self._bytes[name]).hexdigest(),
            )
            for name, tensor in tensors.items()
        ]
        self.manifest = weights_pb2.Manifest(
            model=model,
            version=weights_pb2.WeightVersion(epoch=version.epoch, step=version.step),
            tensors=entries,
            digest=manifest_digest(entries),
        )

    @property
    def digest(self) -> str:
        """The manifest's digest, which names the weights whatever their version."""
        return self.manifest.digest

    @property
    def size_bytes(self) -> int:
        """Of all tensors."""
        return sum(map(len, self._bytes.values()))

    def chunks(self) -> Iterator[weights_pb2.PushRequest]:
        """Yield every tensor's bytes in order."""
        for name, data in self._bytes.items():
            for offset in range(0, len(data), CHUNK_BYTES):
                piece = data[offset : offset + CHUNK_BYTES]
                yield weights_pb2.PushRequest(
                    version=self.manifest.version, name=name, offset=offset, data=piece.tobytes()
                )


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
