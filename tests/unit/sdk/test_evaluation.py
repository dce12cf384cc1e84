from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from safactory.contracts.errors import ConfigError
from safactory.sdk.evaluation import RunOptions, check, resume_command

URL = "http://127.0.0.1:8000/v1"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my lake_config.yaml"
    path.write_text("environments: []")
    return path


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "--base-url with --model, or --route"),
        ({"base_url": URL, "model": "m", "route": "r"}, "not both"),
        ({"base_url": URL}, "needs --model"),
        ({"base_url": "127.0.0.1:8000/v1", "model": "m"}, "no URL such as"),
        ({"base_url": "localhost", "model": "m"}, "no URL such as"),
        ({"base_url": URL, "model": "m", "api_key_env": "NO_SUCH_KEY"}, "environment has no NO_SUCH_KEY"),
        ({"route": "r", "dataset": Path("/nowhere.jsonl")}, "--dataset: is not a file"),
        ({"route": "r", "start_config": Path("/nowhere.yaml")}, "--start-config: is not a file"),
        ({"route": "r", "json_file": Path("/nowhere/x.json")}, "--json: its folder is not there"),
        ({"route": "r", "resume": "j", "samples": 4}, "keeps its dataset, samples and limit"),
    ],
)
def test_a_bad_command_is_refused_before_anything_starts(config: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(RunOptions(config=config, **options))


@pytest.mark.parametrize("path", ["nowhere.yaml", "."])
def test_a_configuration_that_is_no_file_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        check(RunOptions(config=tmp_path / path, route="r"))


def test_good_options_pass_without_a_key_when_none_was_asked_for(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    check(RunOptions(config=config, base_url=URL, model="m"))


def test_the_command_to_go_on_with_has_all_that_is_needed_and_survives_a_shell(config: Path) -> None:
    options = RunOptions(config=config, base_url=URL, model="m", api_key_env="MY_KEY", home=Path("/h"), samples=4)
    words = shlex.split(resume_command(options, "job-1"))
    assert words[:3] == ["safactory", "run", str(config)]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert given == {
        "--base-url": URL,
        "--model": "m",
        "--api-key-env": "MY_KEY",
        "--home": "/h",
        "--resume": "job-1",
    }
