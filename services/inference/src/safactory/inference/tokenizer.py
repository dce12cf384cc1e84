"""`ChatTokenizer`: messages to token ids, and token ids to text, as the model's own directory defines them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, ConfigDict, JsonValue
from tokenizers import Tokenizer

from safactory.contracts.errors import ConfigError, PoisonError
from safactory.inference.model_config import ModelConfig


class _Settings(BaseModel):
    """The part of `tokenizer_config.json` that rendering needs."""

    model_config = ConfigDict(extra="ignore")

    chat_template: str | None = None
    bos_token: str | dict[str, JsonValue] | None = None
    eos_token: str | dict[str, JsonValue] | None = None


class ChatTokenizer:
    """The tokenizer and chat template of one model directory."""

    def __init__(self, model_dir: Path, config: ModelConfig) -> None:
        """Read the directory.

        Raises:
            ConfigError: a file or the chat template is missing.
        """
        path = model_dir / "tokenizer.json"
        if not path.is_file():
            raise ConfigError("no tokenizer", file=str(path))
        self.tokenizer = Tokenizer.from_file(str(path))
        settings = _Settings.model_validate_json((model_dir / "tokenizer_config.json").read_bytes())
        self._template = _template(model_dir, settings)
        self._names = {"bos_token": _text(settings.bos_token), "eos_token": _text(settings.eos_token)}
        self.eos_ids = _eos_ids(model_dir, config, self.tokenizer.token_to_id(self._names["eos_token"]))

    def render(self, messages: Sequence[dict[str, JsonValue]], tools: Sequence[dict[str, JsonValue]] | None) -> str:
        """Return the prompt's text, up to where the assistant's answer begins.

        Raises:
            PoisonError: the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=True, **self._names
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise PoisonError(f"the chat template refuses the messages: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Return token ids; the template has put in every special token, so none is added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def token_text(self, token_id: int) -> str:
        """Return the text of one token by itself, special tokens included."""
        return self.tokenizer.decode([token_id], skip_special_tokens=False)


def _template(model_dir: Path, settings: _Settings) -> Template:
    beside = model_dir / "chat_template.jinja"
    source = beside.read_text() if beside.is_file() else settings.chat_template
    if source is None:
        raise ConfigError("the model has no chat template", file=str(model_dir / "tokenizer_config.json"))
    # A template is code from the model's author: it gets no attribute of ours that it could change or escape by.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
    return environment.from_string(source)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _text(token: str | dict[str, JsonValue] | None) -> str:
    return str(token["content"]) if isinstance(token, dict) else token or ""


def _eos_ids(model_dir: Path, config: ModelConfig, eos_token_id: int | None) -> frozenset[int]:
    ids = set(_listed(config.eos_token_id)) | ({eos_token_id} if eos_token_id is not None else set())
    generation = model_dir / "generation_config.json"
    if generation.is_file():
        ids |= set(_listed(json.loads(generation.read_bytes()).get("eos_token_id")))
    return frozenset(ids)


def _listed(value: int | Iterable[int] | None) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value
