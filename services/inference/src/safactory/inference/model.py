"""`Qwen3`: the forward pass of a dense Qwen3, as functions of one immutable set of weights.

Owns nothing but the weights: caches come in as arguments, so a weight swap is one assignment and cannot leave half of
a model behind. Guarantees: logits equal those of the reference implementation in `transformers` (tested).

Shapes: B rows, T tokens, D hidden, H query heads, G key/value heads, E head size, S cached positions, V vocabulary,
L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from safactory.contracts.errors import WeightsError
from safactory.inference.model_config import ModelConfig


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer."""

    keys_B_G_S_E: Tensor
    values_B_G_S_E: Tensor


@dataclass(frozen=True)
class Layer:
    """The weights of one block; projections of the same input are fused into one matrix."""

    input_norm_D: Tensor
    qkv: Tensor
    query_norm_E: Tensor
    key_norm_E: Tensor
    output: Tensor
    mlp_norm_D: Tensor
    gate_up: Tensor
    down: Tensor


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the unfused Hugging Face name and shape of every tensor of the model."""
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config.num_hidden_layers):
        block = f"model.layers.{layer}."
        shapes |= {
            f"{block}input_layernorm.weight": (hidden,),
            f"{block}self_attn.q_proj.weight": (queries, hidden),
            f"{block}self_attn.k_proj.weight": (keys, hidden),
            f"{block}self_attn.v_proj.weight": (keys, hidden),
            f"{block}self_attn.o_proj.weight": (hidden, queries),
            f"{block}self_attn.q_norm.weight": (head,),
            f"{block}self_attn.k_norm.weight": (head,),
            f"{block}post_attention_layernorm.weight": (hidden,),
            f"{block}mlp.gate_proj.weight": (inner, hidden),
            f"{block}mlp.up_proj.weight": (inner, hidden),
            f"{block}mlp.down_proj.weight": (hidden, inner),
        }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


class Qwen3:
    """One model with one set of weights."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: str) -> None:
        """Take the tensors by their Hugging Face names.

        Raises:
            WeightsError: a name is missing or unknown, or a shape differs.
        """
        check_names(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
        moved = {name: tensor.to(device=device, dtype=dtype) for name, tensor in tensors.items()}
        self.config = config
        self.embedding_V_D = moved["model.embed_tokens.weight"]
        self.head_V_D = moved.get("lm_head.weight", self.embedding_V_D)
        self.norm_D = moved["model.norm.weight"]
        self.layers = [_layer(moved, at) for at in range(config.num_hidden_layers)]
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device) / config.head_dim
        self.inverse_frequencies = config.theta**-exponents

    def prefill(
        self, tokens_B_T: Tensor, lengths_B: Tensor, *, keep_cache: bool = True
    ) -> tuple[Tensor, list[LayerCache]]:
        """Return the logits after each row's last token, and, to be kept, the keys and values of all positions.

        Rows are padded on the right; what lies beyond a row's length is never attended to by what lies before.
        """
        width = tokens_B_T.shape[1]
        cos, sin = self._rotations(torch.arange(width, device=tokens_B_T.device)[None])
        hidden_B_T_D = functional.embedding(tokens_B_T, self.embedding_V_D)
        caches: list[LayerCache] = []
        for layer in self.layers:
            query, key, value = self._project(layer, hidden_B_T_D, cos, sin)
            if keep_cache:
                caches.append(LayerCache(key, value))
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            hidden_B_T_D = self._finish_block(layer, hidden_B_T_D, mixed)
        last_B_D = hidden_B_T_D[torch.arange(len(lengths_B)), lengths_B - 1]
        return self._logits(last_B_D), caches

    def decode(self, tokens_B: Tensor, lengths_B: Tensor, caches: list[LayerCache]) -> Tensor:
        """Return the logits after one more token a row, whose keys and values are written at `lengths_B`."""
        rows_B = torch.arange(len(tokens_B), device=tokens_B.device)
        capacity = caches[0].keys_B_G_S_E.shape[2]
        seen_B_1_1_S = (torch.arange(capacity, device=tokens_B.device) <= lengths_B[:, None])[:, None, None]
        cos, sin = self._rotations(lengths_B[:, None])
        hidden_B_1_D = functional.embedding(tokens_B[:, None], self.embedding_V_D)
        for layer, cache in zip(self.layers, caches, strict=True):
            query, key, value = self._project(layer, hidden_B_1_D, cos, sin)
            cache.keys_B_G_S_E[rows_B, :, lengths_B] = key[:, :, 0]
            cache.values_B_G_S_E[rows_B, :, lengths_B] = value[:, :, 0]
            mixed = functional.scaled_dot_product_attention(
                query, cache.keys_B_G_S_E, cache.values_B_G_S_E, attn_mask=seen_B_1_1_S, enable_gqa=True
            )
            hidden_B_1_D = self._finish_block(layer, hidden_B_1_D, mixed)
        return self._logits(hidden_B_1_D[:, 0])

    def _rotations(self, positions_B_T: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions_B_T[..., None].float() * self.inverse_frequencies
        angles = torch.cat((angles, angles), -1)[:, None]
        return angles.cos().to(self.norm_D.dtype), angles.sin().to(self.norm_D.dtype)

    def _project(self, layer: Layer, hidden_B_T_D: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        config = self.config
        normed = self._rms(hidden_B_T_D, layer.input_norm_D)
        fused = functional.linear(normed, layer.qkv).view(*normed.shape[:2], -1, config.head_dim).transpose(1, 2)
        groups = config.num_key_value_heads
        heads = config.num_attention_heads
        query, key, value = fused[:, :heads], fused[:, heads : heads + groups], fused[:, heads + groups :]
        query = _rotate(self._rms(query, layer.query_norm_E), cos, sin)
        key = _rotate(self._rms(key, layer.key_norm_E), cos, sin)
        return query, key, value

    def _finish_block(self, layer: Layer, hidden_B_T_D: Tensor, mixed_B_H_T_E: Tensor) -> Tensor:
        hidden_B_T_D = hidden_B_T_D + functional.linear(mixed_B_H_T_E.transpose(1, 2).flatten(2), layer.output)
        gate, up = functional.linear(self._rms(hidden_B_T_D, layer.mlp_norm_D), layer.gate_up).chunk(2, -1)
        return hidden_B_T_D + functional.linear(functional.silu(gate) * up, layer.down)

    def _logits(self, hidden_B_D: Tensor) -> Tensor:
        return functional.linear(self._rms(hidden_B_D, self.norm_D), self.head_V_D).float()

    def _rms(self, value: Tensor, weight: Tensor) -> Tensor:
        # The reference computes the norm in float32 and multiplies after rounding; so does this, to the last bit.
        wide = value.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return weight * (wide * scale).to(value.dtype)


def check_names(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that exactly the model's tensors are there.

    Raises:
        WeightsError: a name is missing or unknown, or a shape differs.
    """
    expected = parameter_shapes(config)
    missing, unknown = sorted(expected.keys() - shapes.keys()), sorted(shapes.keys() - expected.keys())
    if missing or unknown:
        raise WeightsError(f"tensors do not fit the model: missing {missing[:5]}, unknown {unknown[:5]}")
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise WeightsError(f"tensor {name} has shape {shapes[name]}, the model needs {shape}")


def _layer(tensors: Mapping[str, Tensor], at: int) -> Layer:
    def of(*names: str) -> Tensor:
        parts = [tensors[f"model.layers.{at}.{name}.weight"] for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return Layer(
        input_norm_D=of("input_layernorm"),
        qkv=of("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        query_norm_E=of("self_attn.q_norm"),
        key_norm_E=of("self_attn.k_norm"),
        output=of("self_attn.o_proj"),
        mlp_norm_D=of("post_attention_layernorm"),
        gate_up=of("mlp.gate_proj", "mlp.up_proj"),
        down=of("mlp.down_proj"),
    )


def _rotate(value: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = value.chunk(2, -1)
    return value * cos + torch.cat((-second, first), -1) * sin
