"""Settings of the inference service (`INFERENCE_*`)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from safactory.infra.settings import ServiceSettings


class InferenceSettings(ServiceSettings):
    """One model server."""

    model_config = SettingsConfigDict(env_prefix="INFERENCE_", extra="ignore", protected_namespaces=())

    port: int = 8000
    grpc_port: int = 50051
    """Of the weights service; 0 picks a free one."""
    model_dir: Path = Path("model")
    """Hugging Face directory: config.json, safetensors, tokenizer.json, tokenizer_config.json."""
    model_name: str = "policy"
    """The name under which the model is asked for."""
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the model computes in, whatever the files hold."""
    batch_max: int = Field(default=64, ge=1)
    """Sequences that run at once."""
    queue_max: int = Field(default=256, ge=0)
    """Requests that wait; one more is answered 429."""
    context_max: int = Field(default=0, ge=0)
    """Tokens of prompt and completion together; 0: what the model was made for."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of one forward pass."""
