"""`read_rows`: a dataset file as JSON objects, whatever its format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import JsonValue

from safactory.contracts.errors import ConfigError
from safactory.scheduler.datasets.json_lines import read_json_lines
from safactory.scheduler.datasets.parquet import read_parquet
from safactory.scheduler.datasets.whole_document import read_json, read_yaml

Row = dict[str, JsonValue]

READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json,
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".parquet": read_parquet,
}


def read_rows(path: Path, columns: list[str] | None = None) -> list[Row]:
    """Read all rows of a dataset file.

    Raises:
        ConfigError: the file is missing, empty, of an unknown format, or a row is not an object; with file and line.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"is none of {', '.join(READERS)}", file=str(path))
    if not path.is_file():
        raise ConfigError("is not there", file=str(path))
    rows = reader(path)
    if not rows:
        raise ConfigError("has no rows", file=str(path))
    if columns is not None:
        missing = [column for column in columns if column not in rows[0]]
        if missing:
            raise ConfigError(f"has no column {missing[0]!r}; it has {', '.join(rows[0])}", file=str(path), line=1)
        rows = [{column: row.get(column) for column in columns} for row in rows]
    for number, row in enumerate(rows, 1):
        _check_plain(row, number, path)
    return rows


def _check_plain(row: Row, number: int, path: Path) -> None:
    """Refuse NaN, infinity and lone surrogates: Python reads them as JSON, and nobody further down the line does."""
    try:
        json.dumps(row, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise ConfigError(f"row {number} is not plain JSON: {error}", file=str(path)) from error
