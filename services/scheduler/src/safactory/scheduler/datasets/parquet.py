"""Parquet, through pyarrow, which is asked for only when a dataset needs it."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import JsonValue

from safactory.contracts.errors import ConfigError


def read_parquet(path: Path) -> list[dict[str, JsonValue]]:
    """Read all rows.

    Raises:
        ConfigError: pyarrow is not installed, the file is not Parquet, or a value has no JSON form.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError("needs pyarrow: pip install 'safactory-scheduler[parquet]'", file=str(path)) from error
    try:
        rows: list[dict[str, JsonValue]] = json.loads(json.dumps(parquet.read_table(path).to_pylist()))
    except (OSError, ArrowException) as error:
        raise ConfigError(f"is not Parquet: {error}", file=str(path)) from error
    except TypeError as error:
        raise ConfigError(f"has a value without a JSON form: {error}", file=str(path)) from error
    return rows
