"""A job request is read strictly: what is wrong is refused with its file, line and field, and the way out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from safactory.contracts.errors import ConfigError
from safactory.contracts.jobs import JobMode, SourceFile, TrainingSpec
from safactory.infra.objects import Objects
from safactory.scheduler.agent_config import HIDDEN_FIELDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Folder

CONFIG = """\
environments:
  - env_name: maze
    env_num: 2
    dataset: datasets/train.jsonl
"""


async def test_a_good_job_is_resolved_to_what_needs_the_disk_no_more(folder: Folder, objects: Objects) -> None:
    spec = await folder.resolve(limit=1, labels={"who": "me"})
    (environment,) = spec.environments
    assert (environment.name, environment.samples, environment.task_count) == ("maze", 2, 1)
    assert (environment.root, environment.params) == (str(folder.path), {"size": 3})
    assert environment.launch.command == ("{python}", str(folder.path / "runner.py"))
    assert environment.launch.env == {"MAZE": "1"}
    assert environment.hidden_fields == HIDDEN_FIELDS
    assert (await objects.get(environment.tasks)).decode() == '{"map": "SF", "answer": "right"}\n'
    assert (spec.planned, spec.labels, spec.mode) == (2, {"who": "me"}, JobMode.EVALUATE)


async def test_what_the_request_says_wins_over_the_file(folder: Folder) -> None:
    other = folder.write("other.json", '[{"map": "GG"}]')
    spec = await folder.resolve(samples=5, dataset=str(other))
    assert (spec.environments[0].samples, spec.environments[0].task_count, spec.planned) == (5, 1, 5)


async def test_an_environment_without_a_dataset_has_one_task_without_data(folder: Folder) -> None:
    folder.write("maze_config.yaml", "environments: [{env_name: maze}]\n")
    spec = await folder.resolve()
    assert (spec.environments[0].task_count, spec.environments[0].samples) == (1, 1)


async def test_files_that_the_scheduler_cannot_see_come_with_the_request(folder: Folder) -> None:
    config = SourceFile(path=str(folder.path / "unsaved.yaml"), text="environments: [{env_name: maze}]\n")
    start = SourceFile(path=str(folder.path / "unsaved_start.yaml"), text="agent_name: maze\n")
    spec = await folder.resolve(agent_config=config, start_config=start)
    assert spec.environments[0].launch.runner_path == str(folder.path / "runner.py")


async def test_the_evaluator_is_found_beside_the_configuration_or_under_the_given_root(folder: Folder) -> None:
    folder.write("elsewhere/maze/rule_evaluator.py", "")
    spec = await folder.resolve(agent_root=str(folder.path / "elsewhere"))
    assert spec.environments[0].root == str(folder.path / "elsewhere" / "maze")


BAD_CONFIGS: dict[str, tuple[str, int, str, str]] = {
    "not yaml": ("environments:\n  - env_name: [maze\n", 3, "", "is not YAML"),
    "a tab": ("environments:\n\t- env_name: maze\n", 2, "", "is not YAML"),
    "a control character": ("environments: \x00\n", 0, "", "is not YAML"),
    "empty": ("", 1, "", "valid dictionary"),
    "a list": ("- env_name: maze\n", 1, "", "valid dictionary"),
    "no environments": ("environments: []\n", 1, "environments", "at least 1"),
    "unknown key above": (
        CONFIG + "enviroments: []\n", 5, "enviroments", "unknown key; the keys here are environments",
    ),
    "unknown key within": (
        CONFIG.replace("dataset:", "data_set:"), 4, "environments.0.data_set",
        "the keys here are dataset, dataset_columns, dataset_load_mode, env_image, env_name, env_num, env_params, "
        "evaluation_timeout_s, hidden_fields, pass_score",
    ),
    "no sessions": (CONFIG.replace("env_num: 2", "env_num: 0"), 3, "environments.0.env_num", "or equal to 1"),
    "fewer than none": (CONFIG.replace("env_num: 2", "env_num: -1"), 3, "environments.0.env_num", "greater than"),
    "a word for a number": (CONFIG.replace("env_num: 2", "env_num: two"), 3, "environments.0.env_num", "valid integer"),
    "half a session": (CONFIG.replace("env_num: 2", "env_num: 1.5"), 3, "environments.0.env_num", "valid integer"),
    "a missing name": ("environments:\n  - env_num: 1\n", 2, "environments.0.env_name", "Field required"),
    "a mark out of reach": (CONFIG + "    pass_score: 11\n", 5, "environments.0.pass_score", "or equal to 10"),
    "a missing dataset": (
        CONFIG.replace("train", "tarin"), 4, "environments.0.dataset", "datasets/tarin.jsonl is not there",
    ),
    "a key twice": (CONFIG + "    env_num: 3\n", 5, "env_num", "stands twice in one mapping"),
    "a name twice": (
        CONFIG + "  - env_name: other\n  - env_name: maze\n", 6, "environments.2.env_name",
        "'maze' stands already on line 2",
    ),
    "another agent's name": (
        CONFIG.replace("maze", "labyrinth"), 2, "environments.0.env_name", "is not the agent_name 'maze'",
    ),
    "a missing column": (CONFIG + "    dataset_columns: [mpa]\n", 1, "", "has no column 'mpa'; it has map, answer"),
    "a recursive alias": ("environments: &a\n  - *a\n", 1, "environments.0", "valid dictionary"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_CONFIGS)
async def test_a_bad_configuration_is_refused(folder: Folder, what: str) -> None:
    text, line, field, says = BAD_CONFIGS[what]
    folder.write("maze_config.yaml", text)
    with pytest.raises(ConfigError) as caught:
        await folder.resolve()
    assert says in str(caught.value)
    expected = "datasets/train.jsonl" if what == "a missing column" else "maze_config.yaml"
    assert (caught.value.file, caught.value.line) == (str(folder.path / expected), line)
    assert caught.value.field == field


BAD_STARTS: dict[str, tuple[str, int, str]] = {
    "unknown key": (
        "agent_name: maze\nproces: {}\n",
        2,
        "unknown key; the keys here are agent_name, container, process",
    ),
    "unknown key within": ("agent_name: maze\nprocess:\n  comand: []\n", 3, "the keys here are command, env, runner"),
    "no name": ("process: {}\n", 1, "Field required"),
    "a missing runner": ("agent_name: maze\nprocess:\n  runner: runer.py\n", 3, "runer.py is not there"),
    "a wrong command": ("agent_name: maze\nprocess:\n  command: python\n", 3, "valid list"),
    "a wrong result mode": ("agent_name: maze\ncontainer:\n  result_mode: xml\n", 3, "'json' or 'exit_code'"),
    "too little output": ("agent_name: maze\nprocess: {stdout_bytes_max: 1}\n", 2, "greater than or equal to 1024"),
}


@pytest.mark.parametrize("what", BAD_STARTS)
async def test_a_bad_start_configuration_is_refused(folder: Folder, what: str) -> None:
    text, line, says = BAD_STARTS[what]
    folder.write("maze_start.yaml", text)
    with pytest.raises(ConfigError) as caught:
        await folder.resolve()
    assert says in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(folder.path / "maze_start.yaml"), line)


async def test_a_configuration_that_cannot_be_read_is_named(folder: Folder) -> None:
    missing = SourceFile(path=str(folder.path / "none_config.yaml"))
    with pytest.raises(ConfigError, match=r"none_config\.yaml: cannot be read"):
        await folder.resolve(agent_config=missing)
    (folder.path / "maze_config.yaml").write_bytes(b"environments: \xff\n")
    with pytest.raises(ConfigError, match=r"maze_config\.yaml: cannot be read"):
        await folder.resolve()
    with pytest.raises(ConfigError, match="cannot be read"):
        await folder.resolve(agent_config=SourceFile(path=str(folder.path)))


async def test_a_start_configuration_that_is_not_there_is_asked_for(folder: Folder) -> None:
    (folder.path / "maze_start.yaml").unlink()
    with pytest.raises(ConfigError, match=r"maze_start\.yaml: give --start-config"):
        await folder.resolve()


async def test_a_dataset_of_the_request_that_is_not_there_is_the_requests_fault(folder: Folder) -> None:
    with pytest.raises(ConfigError, match=r"dataset: the dataset .*none\.jsonl is not there") as caught:
        await folder.resolve(dataset=str(folder.path / "none.jsonl"))
    assert (caught.value.file, caught.value.field) == ("", "dataset")


async def test_a_training_job_must_say_how_long(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="training: a training job needs"):
        await folder.resolve(mode="train")
    spec = await folder.resolve(mode="train", training=TrainingSpec(steps=3))
    assert spec.training and spec.training.steps == 3


async def test_a_command_line_names_the_runner_as_the_file_does(folder: Folder) -> None:
    folder.write("maze_start.yaml", 'agent_name: maze\nprocess: {command: ["{python}", -u, runner.py, --fast]}\n')
    spec = await folder.resolve()
    assert spec.environments[0].launch.command == ("{python}", "-u", str(folder.path / "runner.py"), "--fast")


async def test_a_container_entry_of_the_original_format_is_run_as_a_process(folder: Folder) -> None:
    start: dict[str, Any] = {
        "agent_name": "maze",
        "container": {
            "workdir": "/work", "image_pull": "always", "env": {"A": "1"}, "result_mode": "exit_code",
            "runner_entrypoint": {"source": "runner.py", "target": "/opt/runner.py", "command": "python runner.py"},
        },
    }  # fmt: skip
    folder.write("maze_start.yaml", json.dumps(start))
    launch = (await folder.resolve()).environments[0].launch
    assert (launch.runner_path, launch.env, launch.result_mode) == (
        str(folder.path / "runner.py"), {"A": "1"}, "exit_code",
    )  # fmt: skip
