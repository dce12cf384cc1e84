from __future__ import annotations

import json
from pathlib import Path

import pytest

from safactory.contracts.errors import ConfigError
from safactory.sdk import stack_file
from safactory.sdk.stack_plan import plan_stack


def test_a_stack_that_is_written_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    plan = plan_stack(tmp_path)
    stack_file.write(tmp_path, plan, {"gateway": 1})
    found = stack_file.require(tmp_path)
    assert (found.plan, found.pids) == (plan, {"gateway": 1})
    assert (tmp_path / "stack.json").stat().st_mode & 0o077 == 0
    stack_file.remove(tmp_path)
    assert stack_file.read(tmp_path) is None
    assert not (tmp_path / "stack.json").exists()


def test_a_stack_whose_process_is_gone_is_no_stack(tmp_path: Path) -> None:
    stack_file.write(tmp_path, plan_stack(tmp_path), {})
    path = tmp_path / "stack.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"supervisor_started": 1.0}))
    assert stack_file.read(tmp_path) is None, "its process id belongs to another by now"
    with pytest.raises(ConfigError, match="safactory up"):
        stack_file.require(tmp_path)


def test_a_file_that_is_half_written_is_no_stack(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"supervisor_pid": 1')
    assert stack_file.read(tmp_path) is None
