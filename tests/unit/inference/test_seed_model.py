from __future__ import annotations

from pathlib import Path

import transformers

from safactory.inference.model_config import ModelConfig
from safactory.inference.seed_model import FROZENLAKE_WORDS, SPECIAL_TOKENS, write_seed_model
from safactory.inference.tokenizer import ChatTokenizer


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_seed_model(tmp_path / name, seed=seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]


def test_transformers_loads_model_and_tokenizer_and_renders_the_same_prompt(model_dir: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    theirs = transformers.AutoTokenizer.from_pretrained(model_dir)
    ours = ChatTokenizer(model_dir, ModelConfig.read(model_dir))
    messages = [{"role": "user", "content": "row P F H"}, {"role": "assistant", "content": "up"}]
    text = ours.render([dict(message) for message in messages], None)
    assert text == theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert ours.encode(text) == theirs(text)["input_ids"]
    assert ours.eos_ids == {theirs.eos_token_id} == {model.config.eos_token_id}


def test_every_word_of_the_game_is_one_token(model_dir: Path) -> None:
    tokenizer = ChatTokenizer(model_dir, ModelConfig.read(model_dir))
    ids = [tokenizer.encode(word) for word in (*SPECIAL_TOKENS, *FROZENLAKE_WORDS)]
    assert [len(each) for each in ids] == [1] * len(ids)
    assert sorted(each[0] for each in ids) == list(range(len(ids)))
    assert tokenizer.encode("sideways") == tokenizer.encode("<unk>")
