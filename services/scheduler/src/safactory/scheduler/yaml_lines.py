"""YAML that remembers its lines, so that a refusal can name them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from safactory.contracts.errors import ConfigError
from safactory.contracts.jobs import SourceFile

T = TypeVar("T", bound=BaseModel)
Place = tuple[str | int, ...]


class Document:
    """One parsed file."""

    def __init__(self, file: str, value: object, lines: dict[Place, int]) -> None:
        self.file = file
        self.value = value
        self._lines = lines

    def line(self, place: Sequence[str | int]) -> int:
        """Return the line of a place, or of the nearest thing around it."""
        for end in range(len(place), -1, -1):
            if tuple(place[:end]) in self._lines:
                return self._lines[tuple(place[:end])]
        return 1

    def error(self, message: str, *place: str | int) -> ConfigError:
        """Return an error at a place."""
        return ConfigError(message, file=self.file, line=self.line(place), field=".".join(map(str, place)))


def load(source: SourceFile) -> Document:
    """Read a YAML file.

    Raises:
        ConfigError: it is not there, not readable or not YAML.
    """
    text = source.text
    if text is None:
        try:
            text = Path(source.path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=source.path) from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        raise ConfigError(f"is not YAML: {getattr(error, 'problem', error)}", file=source.path, line=line) from error
    lines: dict[Place, int] = {}
    if node is not None:
        _Lines(source.path, lines).collect(node, ())
    return Document(source.path, value, lines)


def validate(document: Document, model: type[T]) -> T:
    """Read a document as a model.

    Raises:
        ConfigError: a field is unknown, missing or wrong; the first one, with its line.
    """
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"]
        if first["type"] == "extra_forbidden":
            message = f"unknown key; the keys here are {', '.join(known_keys(model, first['loc'][:-1]))}"
        raise document.error(message, *first["loc"]) from error


def known_keys(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the keys that a model allows at a place."""
    current: type[BaseModel] = model
    for part in place:
        field = current.model_fields.get(part) if isinstance(part, str) else None
        inner = _model_in(field.annotation) if field else None
        current = inner or current
    return sorted(current.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None


class _Lines:
    """Finds the line of every place in a document."""

    def __init__(self, file: str, lines: dict[Place, int]) -> None:
        self._file = file
        self._lines = lines
        self._seen: set[int] = set()

    def collect(self, node: yaml.Node, place: Place) -> None:
        """Take note of a node and all in it; an alias stands where its anchor does, also when it is inside of it."""
        self._lines.setdefault(place, node.start_mark.line + 1)
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.collect(item, (*place, index))
        elif isinstance(node, yaml.MappingNode):
            self._mapping(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> None:
        keys: set[Hashable] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in keys:
                raise ConfigError("stands twice in one mapping", file=self._file, line=line, field=str(key.value))
            keys.add(key.value)
            self._lines[(*place, key.value)] = line
            self.collect(value, (*place, key.value))
