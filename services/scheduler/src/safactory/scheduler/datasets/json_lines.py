"""JSON Lines: one object a line; empty lines are passed over."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import JsonValue

from safactory.contracts.errors import ConfigError


def read_json_lines(path: Path) -> list[dict[str, JsonValue]]:
    """Read all rows.

    Raises:
        ConfigError: a line is not a JSON object.
    """
    rows: list[dict[str, JsonValue]] = []
    try:
        # Not splitlines(): a JSON string may hold a raw U+2028, which that takes for the end of a line.
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", file=str(path)) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"is not JSON: {error}", file=str(path), line=number) from error
        if not isinstance(row, dict):
            raise ConfigError("is not a JSON object", file=str(path), line=number)
        rows.append(row)
    return rows
