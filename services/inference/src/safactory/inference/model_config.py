"""`ModelConfig`: the part of a Hugging Face `config.json` that the engine needs, checked where it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from safactory.contracts.errors import ConfigError


class RopeParameters(BaseModel):
    """Rotary position embedding, as newer configs nest it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rope_theta: float = 10000.0
    rope_type: Literal["default"] = "default"
    """Scaled variants are refused rather than served wrongly."""


class ModelConfig(BaseModel):
    """A dense Qwen3."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: Literal["qwen3"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 32768
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False
    tie_word_embeddings: bool = False
    eos_token_id: int | list[int] | None = None
    rope_theta: float | None = None
    """Older configs have it at the top."""
    rope_scaling: None = None
    rope_parameters: RopeParameters = Field(default_factory=RopeParameters)

    @property
    def theta(self) -> float:
        """The base of the rotary frequencies."""
        return self.rope_parameters.rope_theta if self.rope_theta is None else self.rope_theta

    @classmethod
    def read(cls, model_dir: Path) -> ModelConfig:
        """Read `config.json`.

        Raises:
            ConfigError: it is missing, or describes a model that this engine cannot serve exactly.
        """
        path = model_dir / "config.json"
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"no readable model configuration: {error}", file=str(path)) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            message = f"{first['msg']} (the torch engine serves dense Qwen3)"
            raise ConfigError(message, file=str(path), field=field) from None
