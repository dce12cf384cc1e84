"""JSON and YAML files that hold one list of objects."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from pydantic import JsonValue, TypeAdapter, ValidationError

from safactory.contracts.errors import ConfigError

_ROWS = TypeAdapter(list[dict[str, JsonValue]])


def read_json(path: Path) -> list[dict[str, JsonValue]]:
    """Read all rows.

    Raises:
        ConfigError: it is not a JSON list of objects.
    """
    try:
        return _rows(json.loads(path.read_text("utf-8-sig")), path)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error.msg}", file=str(path), line=error.lineno) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", file=str(path)) from error


def read_yaml(path: Path) -> list[dict[str, JsonValue]]:
    """Read all rows.

    Raises:
        ConfigError: it is not a YAML list of mappings.
    """
    try:
        return _rows(yaml.safe_load(path.read_text("utf-8-sig")), path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"is not YAML: {error}", file=str(path)) from error


def _rows(value: object, path: Path) -> list[dict[str, JsonValue]]:
    try:
        return _ROWS.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"expected a list of objects: {first['msg']}", file=str(path), field=place) from error
