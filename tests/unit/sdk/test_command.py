from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from safactory.sdk.__main__ import app


def commands_of(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Name every command and group of commands."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, *path, name)


@pytest.mark.parametrize("words", [*commands_of(typer.main.get_command(app))], ids=" ".join)
def test_every_help_has_an_example(words: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, [*words, "--help"])
    assert answer.exit_code == 0
    assert "Example: safactory" in answer.output


def test_help_comes_in_well_under_a_second_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['safactory', 'run', '--help']\n"
        "from safactory.sdk.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'httpx', 'aiokafka', 'grpc', 'matplotlib') if name in sys.modules])"
    )
    started_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert time.monotonic() - started_s < 3, "0.3 s on a machine that does nothing else"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "list"],
        ["jobs", "show", "j"],
        ["sessions", "list", "j"],
        ["audit", "j"],
        ["status"],
        ["down"],
        ["replay", "safactory.step.v1"],
        ["train", "x.yaml"],
    ],
    ids=" ".join,
)
def test_a_command_that_needs_a_stack_says_how_to_start_one(tmp_path: Path, words: list[str]) -> None:
    answer = CliRunner().invoke(app, [*words, "--home", str(tmp_path)])
    assert answer.exit_code == 2
    assert "safactory up" in answer.stderr


def test_an_option_out_of_range_is_a_bad_command() -> None:
    assert CliRunner().invoke(app, ["run", "x.yaml", "--limit", "0"]).exit_code == 2
