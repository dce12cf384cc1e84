from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from safactory.contracts.errors import ConfigError, WeightsError
from safactory.inference.kv_cache import KvCache
from safactory.inference.model import Qwen3, parameter_shapes
from safactory.inference.model_config import ModelConfig
from safactory.inference.model_dir import digest_of, read_tensors
from safactory.inference.seed_model import write_seed_model


def load(folder: Path) -> Qwen3:
    config = ModelConfig.read(folder)
    return Qwen3(config, read_tensors(folder, config), torch.float32, "cpu")


def reference_logits(folder: Path, tokens: list[int]) -> Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([tokens])).logits[0]
    return logits


@pytest.fixture(params=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shape = {"tie_word_embeddings": request.param == "tied", "num_hidden_layers": 3, "num_attention_heads": 6}
    write_seed_model(tmp_path, seed=3, init_std=0.2, shape=shape)
    return tmp_path


def test_prefill_of_padded_rows_gives_the_logits_of_transformers(folder: Path) -> None:
    rows = [[1, 4, 9, 8, 2], [3, 3], [7, 1, 5, 2, 9, 10, 11, 4, 6]]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    with torch.inference_mode():
        logits, _ = load(folder).prefill(tokens, torch.tensor([len(row) for row in rows]))
    for row, ids in enumerate(rows):
        torch.testing.assert_close(logits[row], reference_logits(folder, ids)[-1], atol=2e-5, rtol=1e-5)


def test_decoding_with_a_cache_gives_the_logits_of_transformers_without_one(folder: Path) -> None:
    prompts = [[1, 4, 9, 8, 2], [3, 3], [7, 1, 5, 2, 9, 10, 11, 4, 6]]
    steps = [[5, 6, 7], [8, 9, 10], [4, 4, 4], [11, 1, 2]]
    model, cache = load(folder), KvCache("cpu")
    width = max(map(len, prompts))
    with torch.inference_mode():
        lengths = torch.tensor([len(ids) for ids in prompts])
        _, caches = model.prefill(torch.tensor([ids + [0] * (width - len(ids)) for ids in prompts]), lengths)
        cache.append(caches, lengths, [0, 1, 2])
        for count, tokens in enumerate(steps, start=1):
            cache.make_room(int(cache.lengths_B.max()))
            logits = model.decode(torch.tensor(tokens), cache.lengths_B, cache.layers)
            cache.lengths_B = cache.lengths_B + 1
            for row, prompt in enumerate(prompts):
                ids = prompt + [step[row] for step in steps[:count]]
                torch.testing.assert_close(logits[row], reference_logits(folder, ids)[-1], atol=2e-5, rtol=1e-5)


def test_a_cache_grows_beyond_its_block_and_loses_rows_without_changing_the_rest(model_dir: Path) -> None:
    model, cache = load(model_dir), KvCache("cpu")
    prompts = [[1 + at % 9 for at in range(62)], [2, 3, 4]]
    with torch.inference_mode():
        for ids in prompts:
            lengths = torch.tensor([len(ids)])
            _, caches = model.prefill(torch.tensor([ids]), lengths)
            cache.append(caches, lengths, [0])
        for count in range(6):
            cache.make_room(int(cache.lengths_B.max()))
            logits = model.decode(torch.full((cache.rows,), 5), cache.lengths_B, cache.layers)
            cache.lengths_B = cache.lengths_B + 1
            expected = reference_logits(model_dir, prompts[-cache.rows] + [5] * (count + 1))[-1]
            torch.testing.assert_close(logits[0], expected, atol=2e-5, rtol=1e-5)
            if count == 3:
                assert cache.capacity == 128
                cache.keep([1])


def test_a_sharded_directory_is_the_same_model(folder: Path) -> None:
    config = ModelConfig.read(folder)
    whole = read_tensors(folder, config)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for at, part in enumerate((names[:7], names[7:]), start=1):
        file = f"model-{at:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert digest_of(read_tensors(folder, config)) == digest_of(whole)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model-00002-of-00002\.safetensors is missing"):
        read_tensors(folder, config)


def test_a_tensor_that_is_missing_unknown_or_misshapen_is_refused(model_dir: Path) -> None:
    config = ModelConfig.read(model_dir)
    tensors = read_tensors(model_dir, config)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == parameter_shapes(config)
    norm = tensors.pop("model.norm.weight")
    with pytest.raises(WeightsError, match=r"missing \['model.norm.weight'\]"):
        Qwen3(config, tensors, torch.float32, "cpu")
    with pytest.raises(WeightsError, match="has shape"):
        Qwen3(config, tensors | {"model.norm.weight": norm[:-1]}, torch.float32, "cpu")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "llama"),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("attention_bias", True),
        ("use_sliding_window", True),
    ],
)
def test_a_model_that_would_be_served_wrongly_is_refused(
    model_dir: Path, tmp_path: Path, field: str, value: object
) -> None:
    config = json.loads((model_dir / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=field):
        ModelConfig.read(tmp_path)
