"""A seed model: a small Qwen3-shaped directory of random weights with a word-level tokenizer.

`python -m safactory.inference.seed_model OUT_DIR --seed N` writes what every engine and trainer of ours (and
`transformers`) can load, so a whole training run fits on a laptop and nothing is downloaded. The same seed gives the
same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from safactory.inference.model_config import ModelConfig

FROZENLAKE_WORDS = (
    *("system", "user", "assistant"),
    *("up", "down", "left", "right"),
    *("row", "S", "F", "H", "G", "P", "W"),
)
"""The vocabulary of the FrozenLake text game."""

CONTEXT_MAX = 512
SPECIAL_TOKENS = ("<unk>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant{% endif %}"
)


def write_seed_model(
    out_dir: Path,
    *,
    seed: int = 0,
    words: Sequence[str] = FROZENLAKE_WORDS,
    shape: dict[str, int] | None = None,
    init_std: float = 0.125,
    embedding_std: float = 0.05,
) -> None:
    """Write config, weights and tokenizer; `shape` overrides fields of the Hugging Face config."""
    out_dir.mkdir(parents=True, exist_ok=True)
    vocabulary = [*SPECIAL_TOKENS, *dict.fromkeys(words)]
    config = _config(len(vocabulary), init_std) | dict(shape or {})
    _write_json(out_dir / "config.json", config)
    _write_tokenizer(out_dir, vocabulary)
    _write_weights(out_dir, ModelConfig.read(out_dir), (init_std, embedding_std), seed)


def _config(vocab_size: int, init_std: float) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_MAX,
        "initializer_range": init_std,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": SPECIAL_TOKENS.index("<|im_end|>"),
        "pad_token_id": SPECIAL_TOKENS.index("<|im_end|>"),
        "torch_dtype": "float32",
    }


def _write_tokenizer(out_dir: Path, vocabulary: list[str]) -> None:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Spaces beside a special token belong to it, else "a <|im_end|> " would depend on how the text was joined.
    tokenizer.add_special_tokens([AddedToken(t, special=True, lstrip=True, rstrip=True) for t in SPECIAL_TOKENS])
    tokenizer.save(str(out_dir / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT_MAX,
        "unk_token": "<unk>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(out_dir / "tokenizer_config.json", settings)
    _write_json(out_dir / "generation_config.json", {"eos_token_id": vocabulary.index("<|im_end|>")})


def _write_weights(out_dir: Path, config: ModelConfig, stds: tuple[float, float], seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    from safactory.inference.model import parameter_shapes

    generator = torch.Generator().manual_seed(seed)
    init_std, embedding_std = stds
    tensors = {}
    for name, shape in sorted(parameter_shapes(config).items()):
        std = embedding_std if name == "model.embed_tokens.weight" else init_std
        tensors[name] = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * std
    save_file(tensors, str(out_dir / "model.safetensors"), metadata={"format": "pt"})


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    """Write a seed model from the command line."""
    parser = argparse.ArgumentParser(description="Write a small random Qwen3-shaped model directory.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init-std", type=float, default=0.125, help="standard deviation of the random matrices")
    parser.add_argument("--embedding-std", type=float, default=0.05, help="the same of the embeddings")
    parser.add_argument("--words", type=Path, help="a file of words, one a line (default: the FrozenLake game's)")
    arguments = parser.parse_args()
    words = FROZENLAKE_WORDS if arguments.words is None else tuple(arguments.words.read_text().split())
    write_seed_model(
        arguments.out_dir,
        seed=arguments.seed,
        words=words,
        init_std=arguments.init_std,
        embedding_std=arguments.embedding_std,
    )


if __name__ == "__main__":
    main()
