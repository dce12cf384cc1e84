"""A folder with an environment's files, each of which a test may spoil."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safactory.contracts.jobs import JobRequest, JobSpec, SourceFile
from safactory.infra.objects import Objects
from safactory.scheduler.job_spec import resolve

CONFIG = """\
# The maze.
environments:
  - env_name: maze
    env_num: 2
    dataset: datasets/train.jsonl
    env_params:
      size: 3
"""
START = """\
agent_name: maze
process:
  runner: runner.py
  env: {MAZE: "1"}
"""
ROWS = '{"map": "SF", "answer": "right"}\n{"map": "FS", "answer": "left"}\n'


class Folder:
    """An environment on disk."""

    def __init__(self, path: Path, objects: Objects) -> None:
        self.path = path
        self._objects = objects
        self.write("maze_config.yaml", CONFIG)
        self.write("maze_start.yaml", START)
        self.write("runner.py", "print('hello')\n")
        self.write("rule_evaluator.py", "")
        self.write("datasets/train.jsonl", ROWS)

    def write(self, name: str, text: str) -> Path:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)
        return self.path / name

    def request(self, **changes: Any) -> JobRequest:
        return JobRequest(**({"agent_config": SourceFile(path=str(self.path / "maze_config.yaml"))} | changes))

    async def resolve(self, **changes: Any) -> JobSpec:
        return await resolve(self.request(**changes), "job", self._objects)


@pytest.fixture
def folder(tmp_path: Path, objects: Objects) -> Folder:
    return Folder(tmp_path / "maze", objects)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a file and return its path."""

    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write
