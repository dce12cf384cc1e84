"""Reading a Hugging Face model directory: its tensors, and the digest that says which weights they are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from safactory.contracts.errors import ConfigError
from safactory.contracts.rpc.v1 import weights_pb2
from safactory.contracts.weight_manifest import manifest_digest
from safactory.inference.model_config import ModelConfig

DTYPE_OF = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""safetensors' spelling → torch's, for the types that weights may have."""
_NAME_OF = {dtype: name for name, dtype in DTYPE_OF.items()}


def read_tensors(model_dir: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Return the directory's tensors, of one file or of a sharded index.

    Raises:
        ConfigError: there are no safetensors, or one has a type that is not served.
    """
    tensors: dict[str, Tensor] = {}
    for path in _shards(model_dir):
        tensors |= load_file(path)
    if config.tie_word_embeddings:
        # Some writers store the shared matrix under both names.
        tensors.pop("lm_head.weight", None)
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAME_OF:
            raise ConfigError(f"tensor {name} is {tensor.dtype}; served are {sorted(DTYPE_OF)}", file=str(model_dir))
    return tensors


def _shards(model_dir: Path) -> list[Path]:
    index = model_dir / "model.safetensors.index.json"
    if index.exists():
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    paths = [model_dir / name for name in names]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ConfigError(f"no weights: {missing[0]} is missing", file=str(model_dir))
    return paths


def digest_of(tensors: dict[str, Tensor]) -> str:
    """Return the digest that a manifest of these tensors would have."""
    return manifest_digest(
        weights_pb2.TensorEntry(
            name=name,
            dtype=_NAME_OF[tensor.dtype],
            shape=tensor.shape,
            bytes=tensor.nbytes,
            sha256=hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().data).hexdigest(),
        )
        for name, tensor in tensors.items()
    )
