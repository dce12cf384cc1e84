"""`Policy`: the model that is trained, its optimiser, and its weights by their Hugging Face names."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

from safactory.contracts.errors import ConfigError
from safactory.infra.boundary import boundary
from safactory.trainer.settings import TrainerSettings
from safactory.trainer.step import make_optimiser


class Policy:
    """A causal language model of `transformers`, and AdamW over all of it."""

    def __init__(self, settings: TrainerSettings, model_dir: Path) -> None:
        """Load the weights of a directory.

        Raises:
            ConfigError: it is not a model that `transformers` can load.
        """
        torch.manual_seed(settings.seed)
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        with boundary(ConfigError, f"cannot load the model of {model_dir}"):
            model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
        self.model = model.to(settings.device)
        self.optimiser = make_optimiser(self.model, settings.optimiser)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights, each once: a matrix shared by two names goes by the first."""
        seen: set[int] = set()
        unique: dict[str, Tensor] = {}
        for name, tensor in self.model.state_dict().items():
            if tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                unique[name] = tensor.detach().cpu().contiguous()
        return unique
