"""The two YAML files of an environment, in Safactory's format, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from safactory.contracts.jobs import SourceFile
from safactory.contracts.runner import LaunchSpec
from safactory.scheduler.yaml_lines import Document, load, validate

HIDDEN_FIELDS = (
    "answer", "answers", "solution", "ground_truth", "label", "labels", "expected", "expected_answer", "target",
    "reference", "gold", "metadata",
)  # fmt: skip
"""Dataset fields that runners never see unless an environment says `hidden_fields: […]`."""


class EnvironmentEntry(BaseModel):
    """One item of `environments` in `<name>_config.yaml`."""

    model_config = ConfigDict(extra="forbid")

    env_name: str
    env_image: str = ""
    """Of the container runtimes; local processes do not use it."""
    env_num: int = Field(default=1, ge=1)
    """Sessions a task."""
    dataset: str | None = None
    """JSON, JSONL, YAML or Parquet; relative to this file. None: one task without data."""
    dataset_load_mode: Literal["eager", "parquet_row_ref"] = "eager"
    dataset_columns: list[str] | None = None
    """Columns to keep; None: all."""
    env_params: dict[str, JsonValue] = Field(default_factory=dict)
    required_fields: list[str] = Field(default_factory=list)
    """Fields that every row must have; a dataset without them is refused before anything runs."""
    hidden_fields: list[str] | None = None
    """Fields of a row that are kept from the runner; None: the usual names of an answer."""
    pass_score: float = Field(default=10.0, ge=0, le=10)
    """Score (0–10) from which a session counts as succeeded."""
    evaluation_timeout_s: float = Field(default=60.0, gt=0)


class AgentConfig(BaseModel):
    """`<name>_config.yaml`."""

    model_config = ConfigDict(extra="forbid")

    environments: list[EnvironmentEntry] = Field(min_length=1)


class RunnerEntrypoint(BaseModel):
    """Where the runner's file is, and how a container starts it."""

    model_config = ConfigDict(extra="forbid")

    source: str
    target: str = ""
    command: str = ""


class ContainerStart(BaseModel):
    """How a container is started; a local process takes the runner's file and the variables from it."""

    model_config = ConfigDict(extra="allow")

    workdir: str = ""
    runner_entrypoint: RunnerEntrypoint | None = None
    env: dict[str, str] = Field(default_factory=dict)
    result_mode: Literal["json", "exit_code"] = "json"


class ProcessStart(BaseModel):
    """How a local process is started."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] = Field(default_factory=list)
    """argv; `{python}` is the worker's interpreter. Empty: `{python} <runner>`."""
    runner: str = ""
    """The runner's file; empty: the container's, or `runner.py`."""
    warm: bool = True
    env: dict[str, str] = Field(default_factory=dict)
    stdout_bytes_max: int = Field(default=8 * 1024 * 1024, ge=1024)


class StartConfig(BaseModel):
    """`<name>_start.yaml`."""

    model_config = ConfigDict(extra="forbid")

    agent_name: str
    container: ContainerStart = Field(default_factory=ContainerStart)
    process: ProcessStart = Field(default_factory=ProcessStart)
    sandbox: dict[str, JsonValue] | None = None
    rjob: dict[str, JsonValue] | None = None


def read_agent_config(source: SourceFile) -> tuple[Document, AgentConfig]:
    """Read `<name>_config.yaml`.

    Raises:
        ConfigError: with file and line.
    """
    document = load(source)
    config = validate(document, AgentConfig)
    names = [entry.env_name for entry in config.environments]
    for index, name in enumerate(names):
        if name in names[:index]:
            first = document.line(("environments", names.index(name), "env_name"))
            raise document.error(f"{name!r} stands already on line {first}", "environments", index, "env_name")
    return document, config


def read_start_config(source: SourceFile) -> tuple[Document, StartConfig]:
    """Read `<name>_start.yaml`.

    Raises:
        ConfigError: with file and line.
    """
    document = load(source)
    return document, validate(document, StartConfig)


def launch_of(document: Document, start: StartConfig) -> LaunchSpec:
    """Return how a local process is started.

    Raises:
        ConfigError: the runner's file is not there.
    """
    entrypoint = start.container.runner_entrypoint
    named = start.process.runner or (entrypoint.source if entrypoint else "runner.py")
    runner = (Path(document.file).parent / named).resolve()
    if not runner.is_file():
        place = ("process", "runner") if start.process.runner else ("container", "runner_entrypoint", "source")
        raise document.error(f"the runner {runner} is not there", *place)
    command = tuple(start.process.command) or ("{python}", str(runner))
    return LaunchSpec(
        command=tuple(str(runner) if part in (named, runner.name) else part for part in command),
        runner_path=str(runner),
        env={**start.container.env, **start.process.env},
        warm=start.process.warm,
        result_mode=start.container.result_mode,
        stdout_bytes_max=start.process.stdout_bytes_max,
    )
