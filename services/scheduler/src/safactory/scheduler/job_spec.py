"""`resolve`: a job request and its files → a `JobSpec` that needs the caller's disk no more.

Everything that can be wrong with a job is refused here, before anything is queued.
"""

from __future__ import annotations

import json
from pathlib import Path

from safactory.contracts.errors import ConfigError
from safactory.contracts.jobs import EnvironmentSpec, JobMode, JobRequest, JobSpec, SourceFile
from safactory.infra.objects import Objects
from safactory.scheduler.agent_config import (
    HIDDEN_FIELDS,
    EnvironmentEntry,
    launch_of,
    read_agent_config,
    read_start_config,
)
from safactory.scheduler.datasets.base import Row, read_rows
from safactory.scheduler.yaml_lines import Document


async def resolve(request: JobRequest, job_id: str, objects: Objects) -> JobSpec:
    """Read the files that a request names, and store its tasks.

    Raises:
        ConfigError: something is wrong or missing; with file and line.
        ObjectError: the object store refused or did not answer.
    """
    if request.mode is JobMode.TRAIN and request.training is None:
        raise ConfigError("a training job needs `training: {steps: …}`", field="training")
    document, config = read_agent_config(request.agent_config)
    environments = [
        await _environment(request, document, index, entry, objects) for index, entry in enumerate(config.environments)
    ]
    return JobSpec(
        job_id=job_id,
        mode=request.mode,
        route=request.route,
        temperature=request.temperature,
        max_steps=request.max_steps,
        attempts_max=request.attempts_max,
        session_timeout_s=request.session_timeout_s,
        group_deadline_s=request.group_deadline_s,
        environments=tuple(environments),
        training=request.training,
        labels=request.labels,
    )


async def _environment(
    request: JobRequest, document: Document, index: int, entry: EnvironmentEntry, objects: Objects
) -> EnvironmentSpec:
    start_document, start = read_start_config(_start_source(request, document))
    if start.agent_name != entry.env_name:
        raise document.error(
            f"{entry.env_name!r} is not the agent_name {start.agent_name!r} of {start_document.file}",
            "environments", index, "env_name",
        )  # fmt: skip
    rows = _rows(request, document, index, entry)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return EnvironmentSpec(
        name=entry.env_name,
        root=str(_root(request, document, entry.env_name)),
        launch=launch_of(start_document, start),
        params=entry.env_params,
        hidden_fields=HIDDEN_FIELDS if entry.hidden_fields is None else tuple(entry.hidden_fields),
        samples=request.samples or entry.env_num,
        pass_score=entry.pass_score,
        evaluation_timeout_s=entry.evaluation_timeout_s,
        tasks=await objects.put(text.encode(), prefix="tasks"),
        task_count=len(rows),
    )


def _rows(request: JobRequest, document: Document, index: int, entry: EnvironmentEntry) -> list[Row]:
    named = request.dataset or entry.dataset
    if named is None:
        return [{}]
    # A dataset given with the request is the caller's path; one in the file is relative to that file.
    path = Path(named) if request.dataset else Path(document.file).parent / named
    if not path.is_file():
        message = f"the dataset {path.resolve()} is not there"
        if request.dataset:
            raise ConfigError(message, field="dataset")
        raise document.error(message, "environments", index, "dataset")
    rows = read_rows(path, entry.dataset_columns)[: request.limit]
    for number, row in enumerate(rows, 1):
        if missing := [field for field in entry.required_fields if field not in row]:
            raise ConfigError(f"row {number} has no field {missing[0]!r}; it has {', '.join(row)}", file=str(path))
    return rows


def _start_source(request: JobRequest, document: Document) -> SourceFile:
    if request.start_config is not None:
        return request.start_config
    config = Path(document.file)
    name = config.name.replace("_config.", "_start.")
    beside = config.with_name(name if name != config.name else f"{config.stem}_start{config.suffix}")
    if not beside.is_file():
        raise ConfigError(f"no start configuration {beside}: give --start-config", file=document.file)
    return SourceFile(path=str(beside))


def _root(request: JobRequest, document: Document, name: str) -> Path:
    folder = Path(document.file).resolve().parent
    roots = [Path(request.agent_root) / name] if request.agent_root else [folder, folder.parent / name]
    for root in roots:
        if (root / "rule_evaluator.py").is_file():
            return root.resolve()
    return roots[0].resolve()
