"""Datasets in every format, and the files that are none."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from safactory.contracts.errors import ConfigError
from safactory.scheduler.datasets.base import read_rows

ROWS = [{"q": "1+1", "n": 2, "deep": {"list": [1, None]}}, {"q": "grüße\u2028", "n": 3, "deep": {"list": []}}]
YAML = """\
- {q: 1+1, n: 2, deep: {list: [1, null]}}
- {q: "grüße\\L", n: 3, deep: {list: []}}
"""
Write = Callable[[str, str], Path]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)),
        ("a.jsonl", "\r\n\r\n".join(json.dumps(row) for row in ROWS)),
        ("a.jsonl", "\ufeff" + "\n".join(json.dumps(row) for row in ROWS)),
        ("a.ndjson", "\n".join(json.dumps(row) for row in ROWS)),
        ("a.JSONL", "\n".join(json.dumps(row) for row in ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.json", "\ufeff" + json.dumps(ROWS)),
        ("a.yaml", YAML),
        ("a.yml", YAML),
    ],
)
def test_rows_are_read(file: Write, name: str, text: str) -> None:
    assert read_rows(file(name, text)) == ROWS


def test_rows_are_read_from_parquet(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet") == ROWS


def test_only_the_wanted_columns_are_kept(file: Write) -> None:
    path = file("a.jsonl", '{"q": 1, "n": 2, "x": NaN}\n{"q": 3}\n')
    assert read_rows(path, ["q", "n"]) == [{"q": 1, "n": 2}, {"q": 3, "n": None}]
    with pytest.raises(ConfigError, match="has no column 'a'; it has q, n, x"):
        read_rows(path, ["q", "a"])


@pytest.mark.parametrize(
    ("name", "text", "line", "says"),
    [
        ("a.jsonl", '{"q": 1}\n\n{"q": \n', 3, "is not JSON"),
        ("a.jsonl", '{"q": 1}\n[1]\n', 2, "is not a JSON object"),
        ("a.jsonl", '{"q": 1}\n"x"\n', 2, "is not a JSON object"),
        ("a.jsonl", "", 0, "has no rows"),
        ("a.jsonl", "\n \n", 0, "has no rows"),
        ("a.json", '[{"q": 1},\n {"q" 2}]', 2, "is not JSON"),
        ("a.json", '{"q": 1}', 0, "expected a list of objects"),
        ("a.json", '[{"q": 1}, 2]', 0, "1: expected a list of objects"),
        ("a.json", "[]", 0, "has no rows"),
        ("a.yaml", "- {q: 1", 0, "is not YAML"),
        ("a.yaml", "q: 1", 0, "expected a list of objects"),
        ("a.yaml", "- {day: 2020-01-01}", 0, "expected a list of objects"),
        ("a.yaml", "", 0, "expected a list of objects"),
        ("a.parquet", "hello", 0, "is not Parquet"),
        ("a.csv", "q\n1\n", 0, "is none of .jsonl, .ndjson, .json, .yaml, .yml, .parquet"),
        ("dataset", "", 0, "is none of"),
        ("a.jsonl", '{"q": 1}\n{"q": NaN}\n', 0, "row 2 is not plain JSON"),
        ("a.json", '[{"q": -Infinity}]', 0, "row 1 is not plain JSON"),
        ("a.yaml", "- {q: .inf}", 0, "row 1 is not plain JSON"),
        ("a.jsonl", '{"q": "\\ud800"}', 0, "row 1 is not plain JSON"),
    ],
)
def test_what_is_no_dataset_is_refused_with_its_place(file: Write, name: str, text: str, line: int, says: str) -> None:
    path = file(name, text)
    with pytest.raises(ConfigError) as caught:
        read_rows(path)
    assert says in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(path), line)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.yaml"])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'{"q": "\xff\xfe"}')
    with pytest.raises(ConfigError, match=r"cannot be read|is not YAML"):
        read_rows(tmp_path / name)


def test_a_value_of_parquet_without_a_json_form_is_refused(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist([{"when": datetime.datetime(2020, 1, 1)}])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="without a JSON form"):
        read_rows(tmp_path / "a.parquet")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl: is not there"):
        read_rows(tmp_path / "none.jsonl")
