"""`safactory run`: evaluate an agent configuration against any model server."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console
from safactory.contracts.errors import ConfigError, SafactoryError
from safactory.contracts.jobs import JobRequest, SourceFile
from safactory.sdk.client import Facts, Safactory
from safactory.sdk.errors_shown import EXIT_INTERRUPTED, EXIT_UNSCORED
from safactory.sdk.interrupts import Interrupted, StopFlag, stop_flag
from safactory.sdk.local_stack import LocalStack, local_stack
from safactory.sdk.results_table import causes, results_json, results_table, scored
from safactory.sdk.watch import Watch

PARTIAL_S = 8.0
"""After Ctrl-C: how long the partial table may take."""
DEFAULT_KEY = "OPENAI_API_KEY"


class RunOptions(BaseModel):
    """What the command line says."""

    config: Path
    base_url: str = ""
    model: str = ""
    route: str = ""
    api_key_env: str = DEFAULT_KEY
    dataset: Path | None = None
    start_config: Path | None = None
    samples: int = 1
    limit: int | None = None
    max_steps: int = -1
    temperature: float = 1.0
    timeout_s: float = 600.0
    json_file: Path | None = None
    resume: str = ""
    home: Path = Path(".safactory")


def run(options: RunOptions) -> int:
    """Evaluate, and return the exit status.

    Raises:
        ConfigError: the command, configuration or dataset is wrong.
        ServiceError: the stack failed.
    """
    _check(options)
    console = Console()
    started_s = time.monotonic()
    with (
        stop_flag() as flag,
        local_stack(options.home, flag, console.print) as stack,
        Safactory(stack.plan.urls["scheduler"], stack.plan.urls["dataelf"]) as client,
    ):
        route = options.route or (_add_route(options, client, stack) if options.base_url else "")
        job = client.resume(options.resume) if options.resume else client.submit(_request(options, route))
        job_id = str(job["job_id"])
        console.print(f"job {job_id}: {job['planned']} sessions", highlight=False)
        watch = Watch(client, flag, stack.check, console)
        try:
            results = watch.results(job_id, watch.until_ended(job_id, options.config.stem.removesuffix("_config")))
        except Interrupted:
            _interrupted(options, client, job_id, console, time.monotonic() - started_s)
            return EXIT_INTERRUPTED
    return _report(options, results, console, time.monotonic() - started_s)


def _check(options: RunOptions) -> None:
    if not options.config.is_file():
        raise ConfigError("is not there", file=str(options.config))
    if bool(options.base_url) == bool(options.route):
        raise ConfigError("give --base-url with --model, or --route, and not both")
    if options.base_url and not options.model:
        raise ConfigError("--base-url needs --model: the name by which that server knows the model")
    if options.dataset and not options.dataset.is_file():
        raise ConfigError("is not there", file=str(options.dataset), field="--dataset")


def _request(options: RunOptions, route: str) -> JobRequest:
    start = options.start_config
    return JobRequest(
        agent_config=SourceFile(path=str(options.config.absolute())),
        start_config=SourceFile(path=str(start.absolute())) if start else None,
        route=route,
        samples=options.samples,
        limit=options.limit,
        max_steps=options.max_steps,
        temperature=options.temperature,
        session_timeout_s=options.timeout_s,
        dataset=str(options.dataset.absolute()) if options.dataset else None,
    )


def _add_route(options: RunOptions, client: Safactory, stack: LocalStack) -> str:
    key = os.environ.get(options.api_key_env, "")
    if not key and options.api_key_env != DEFAULT_KEY:
        raise ConfigError(f"the environment has no {options.api_key_env}", field="--api-key-env")
    name = f"run-{hashlib.sha256(f'{options.base_url} {options.model}'.encode()).hexdigest()[:10]}"
    route: Facts = {"base_url": options.base_url, "model": options.model, "api_key": key}
    client.put_route(stack.plan.urls["gateway"], name, route, stack.plan.token_key)
    return name


def _report(options: RunOptions, results: Facts, console: Console, wall_s: float) -> int:
    console.print(results_table(results))
    console.print(f"wall time {wall_s:.1f} s", highlight=False)
    for cause in causes(results):
        console.print(f"without a score: {cause}", highlight=False, soft_wrap=True)
    if options.json_file:
        options.json_file.write_text(json.dumps(results_json(results, wall_s), indent=1) + "\n")
    if scored(results) == 0:
        console.print("no session was scored", style="red")
        return EXIT_UNSCORED
    return 0


def _interrupted(options: RunOptions, client: Safactory, job_id: str, console: Console, wall_s: float) -> None:
    """Cancel, show what there is, and say how to go on."""
    try:
        client.cancel(job_id, "interrupted")
        deadline = time.monotonic() + PARTIAL_S
        flag = StopFlag()
        while client.job(job_id)["state"] != "ended" and time.monotonic() < deadline:
            flag.sleep(0.2)
        results = Watch(client, flag, lambda: None, console).results(job_id, client.job(job_id))
        console.print(results_table(results))
        if options.json_file:
            options.json_file.write_text(json.dumps(results_json(results, wall_s), indent=1) + "\n")
    except SafactoryError as error:
        console.print(f"no partial table: {error}", highlight=False)
    how = f"--route {options.route}" if options.route else f"--base-url {options.base_url} --model {options.model}"
    console.print(f"interrupted; go on with: safactory run {options.config} {how} --resume {job_id}", highlight=False)
