"""Settings of the trainer (`TRAINER_*`); the only place where it meets the environment. Imports nothing heavy.

Nested ones are written with two underscores: `TRAINER_OPTIMISER__LR=2e-3`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field
from pydantic_settings import SettingsConfigDict

from safactory.infra.settings import ServiceSettings
from safactory.trainer.advantages import AdvantageKind


class OptimiserSettings(BaseModel):
    """AdamW, and how often it is applied."""

    lr: float = Field(default=1e-6, gt=0)
    lr_final_fraction: float = Field(default=1.0, ge=0, le=1)
    """What is left of `lr` at a job's last step, falling in a straight line from its first; 1 keeps it."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest 2-norm of the whole gradient."""
    passes: int = Field(default=1, ge=1)
    """Updates made of one batch; the clip is about the policy before the first."""

    def lr_at(self, progress: float) -> float:
        """Return the learning rate of the step at this place of a job: 0 is its first, 1 its last."""
        return self.lr * (1.0 - progress * (1.0 - self.lr_final_fraction))


class LossSettings(BaseModel):
    """Decoupled PPO."""

    clip_low: float = Field(default=0.2, ge=0, le=1)
    """The ratio's clip is [1 − clip_low, 1 + clip_high]."""
    clip_high: float = Field(default=0.28, ge=0)
    tis_cap: float = Field(default=2.0, gt=0)
    """Largest weight old/roll of a token."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """What one nat of a token's entropy is worth, in units of loss."""
    advantage: AdvantageKind = AdvantageKind.GROUP_CENTRED


class CheckpointSettings(BaseModel):
    """What survives a restart."""

    dir: Path = Path(".safactory/checkpoints")
    every_steps: int = Field(default=1, ge=1)
    """A job's last step is always checkpointed."""
    keep: int = Field(default=2, ge=1)
    """Older ones are deleted."""


class PushSettings(BaseModel):
    """How weights get to the model servers."""

    every_steps: int = Field(default=1, ge=1)
    """A job's last version is always pushed."""
    timeout_s: float = Field(default=120.0, gt=0)
    """For each call of a push; a server that takes longer is quarantined until the next push."""
    retry_s: float = Field(default=2.0, gt=0)
    """Between two tries when no server took a version."""


class TrainerSettings(ServiceSettings):
    """What one trainer process trains, with what, and where it puts the result."""

    model_config = SettingsConfigDict(
        env_prefix="TRAINER_", env_nested_delimiter="__", extra="ignore", protected_namespaces=()
    )

    port: int = 8006
    model_dir: Path = Path("model")
    """Hugging Face directory of the initial weights."""
    model_name: str = "policy"
    """Under which the model servers serve it."""
    engines: str = "127.0.0.1:50051"
    """gRPC addresses of the model servers' weights services, comma-separated; empty: train without publishing."""
    optimiser: OptimiserSettings = OptimiserSettings()
    loss: LossSettings = LossSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    push: PushSettings = PushSettings()
    micro_batch_tokens: int = Field(default=16384, ge=1)
    """Padded tokens of one forward pass; a longer sequence gets a pass of its own."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of one forward pass."""
    device: str = "cpu"
    seed: int = 0

    @property
    def engine_addresses(self) -> tuple[str, ...]:
        """The model servers, one address each."""
        return tuple(address.strip() for address in self.engines.split(",") if address.strip())
