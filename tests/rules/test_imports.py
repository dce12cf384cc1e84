"""Imports point one way: the contracts of import-linter in pyproject.toml hold, and would be seen broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

PLANTED = {
    "gateway/settings.py": "import safactory.scheduler.settings",
    "dataelf/late.py": "import safactory.inference.settings",
    "infra/tasks.py": "import safactory.gateway.errors",
    "contracts/ids.py": "import safactory.infra.tasks",
    "contracts/messages.py": "import httpx",
    "scheduler/plan.py": "import safactory.testkit.ports",
    "sdk/client.py": "import safactory.trainer.settings",
    "evaluator/attempts.py": "import torch",
    "inference/engine.py": "import vllm",
}
"""File → an import that it must not have."""
BROKEN = (
    "safactory.gateway is not allowed to import safactory.scheduler",
    "safactory.dataelf is not allowed to import safactory.inference",
    "safactory.infra is not allowed to import safactory.gateway",
    "safactory.contracts is not allowed to import safactory.infra",
    "safactory.contracts is not allowed to import httpx",
    "safactory.scheduler is not allowed to import safactory.testkit",
    "safactory.sdk is not allowed to import safactory.trainer",
    "safactory.evaluator is not allowed to import torch",
    "safactory.inference is not allowed to import vllm",
)


def lint(root: Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    env = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=60, check=False)


def sources(root: Path) -> list[Path]:
    return [place for kind in ("packages", "services") for place in root.glob(f"{kind}/*/src/safactory/*")]


def test_imports_point_one_way(root: Path) -> None:
    done = lint(root)
    assert done.returncode == 0, done.stdout


def test_every_part_is_judged(root: Path) -> None:
    judged = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    assert sorted(judged) == sorted(f"safactory.{place.name}" for place in sources(root) if place.name[0] != "_")


def test_a_wrong_import_is_found_in_every_direction(root: Path, tmp_path: Path) -> None:
    for place in sources(root):
        shutil.copytree(place, tmp_path / "safactory" / place.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, statement in PLANTED.items():
        with (tmp_path / "safactory" / name).open("a") as file:
            file.write(f"\n{statement}\n")
    # The copy stands before the installed parts, so it is what the linter reads.
    done = lint(root, {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert [sentence for sentence in BROKEN if sentence not in " ".join(done.stdout.split())] == []
