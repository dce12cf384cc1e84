from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from safactory.contracts.errors import ConfigError, PoisonError
from safactory.inference.model_config import ModelConfig
from safactory.inference.tokenizer import ChatTokenizer


def with_template(model_dir: Path, folder: Path, template: str | None) -> ChatTokenizer:
    shutil.copytree(model_dir, folder, dirs_exist_ok=True)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    return ChatTokenizer(folder, ModelConfig.read(folder))


def test_a_template_can_refuse_messages_with_its_own_words(model_dir: Path, tmp_path: Path) -> None:
    tokenizer = with_template(model_dir, tmp_path, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(PoisonError, match="roles must alternate"):
        tokenizer.render([{"role": "user", "content": "up"}], None)


def test_a_template_cannot_reach_out_of_its_sandbox(model_dir: Path, tmp_path: Path) -> None:
    tokenizer = with_template(model_dir, tmp_path, "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}")
    with pytest.raises(PoisonError):
        tokenizer.render([{"role": "user", "content": "up"}], None)


def test_a_template_sees_tools_and_special_tokens(model_dir: Path, tmp_path: Path) -> None:
    tokenizer = with_template(model_dir, tmp_path, "{{ tools | tojson }} {{ eos_token }} {{ add_generation_prompt }}")
    assert tokenizer.render([], [{"name": "é"}]) == '[{"name": "é"}] <|im_end|> True'


def test_a_template_in_a_file_of_its_own_is_used(model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(model_dir, tmp_path, dirs_exist_ok=True)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0]['content'] }}!")
    tokenizer = ChatTokenizer(tmp_path, ModelConfig.read(tmp_path))
    assert tokenizer.render([{"role": "user", "content": "up"}], None) == "up!"


def test_a_model_without_a_template_is_refused_at_start(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        with_template(model_dir, tmp_path, None)
