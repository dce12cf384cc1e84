"""Settings of the trainer (`TRAINER_*`); the only place where it meets the environment. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from safactory.trainer.advantages import AdvantageKind


class OptimiserSettings(BaseModel):
    """AdamW."""

    lr: float = Field(default=1e-6, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest 2-norm of the whole gradient."""


class LossSettings(BaseModel):
    """Decoupled PPO."""

    clip_low: float = Field(default=0.2, ge=0, le=1)
    """The ratio's clip is [1 − clip_low, 1 + clip_high]."""
    clip_high: float = Field(default=0.28, ge=0)
    tis_cap: float = Field(default=2.0, gt=0)
    """Largest weight old/roll of a token."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Nats of entropy a token are worth this much loss."""
    advantage: AdvantageKind = AdvantageKind.GROUP_CENTRED


class TrainerSettings(BaseSettings):
    """What one trainer process trains, with what, and where it puts the result."""

    model_config = SettingsConfigDict(env_prefix="TRAINER_", env_nested_delimiter="__", extra="ignore")

    model_dir: Path = Path("model")
    """Hugging Face directory of the initial weights."""
    checkpoint_dir: Path = Path(".safactory/checkpoints")
    optimiser: OptimiserSettings = OptimiserSettings()
    loss: LossSettings = LossSettings()
    passes: int = Field(default=1, ge=1)
    """Optimiser updates over one batch; the clip is about the policy before the first."""
    micro_batch_tokens: int = Field(default=16384, ge=1)
    """Padded tokens of one forward pass; a longer sequence gets a pass of its own."""
    seed: int = 0
