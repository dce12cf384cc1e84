"""The committed gRPC stubs are what `proto/generate` makes of `proto/`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STUBS = "safactory/contracts/rpc/v1"


def generated(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*_pb2*.py*") if path.suffix != ".pyc"}


def test_the_stubs_regenerate_to_the_same_bytes(root: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([root / "proto/generate", tmp_path], env=env, check=True, capture_output=True, timeout=60)
    made, kept = generated(tmp_path / STUBS), generated(root / "packages/contracts/src" / STUBS)
    assert len(made) == 12
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []
