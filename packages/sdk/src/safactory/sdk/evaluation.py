"""`safactory run`: evaluate an agent configuration against any model server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import time
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel
from rich.console import Console

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import ConfigError, SafactoryError, ServiceError
from safactory.contracts.jobs import JobRequest, SourceFile
from safactory.sdk.calls import Facts
from safactory.sdk.client import Safactory
from safactory.sdk.errors_shown import EXIT_INTERRUPTED, EXIT_UNSCORED
from safactory.sdk.interrupts import Interrupted, StopFlag, stop_flag
from safactory.sdk.local_stack import LocalStack, local_stack
from safactory.sdk.results_table import (
    causes,
    results_json,
    results_table,
    scored,
    with_every_session,
    without_archive,
)
from safactory.sdk.watch import Watch

PARTIAL_S = 8.0
"""After Ctrl-C: how long the sessions that ran may take to be scored."""
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

    @property
    def title(self) -> str:
        """The configuration's name."""
        return self.config.stem.removesuffix("_config")

    @property
    def api_key(self) -> str:
        """The key that the environment has; empty when it has none."""
        return os.environ.get(self.api_key_env, "")


def run(options: RunOptions) -> int:
    """Evaluate, and return the exit status.

    Raises:
        ConfigError: the command, configuration or dataset is wrong.
        ServiceError: the stack failed.
    """
    check(options)
    console = Console(highlight=False, soft_wrap=True)
    started_s = time.monotonic()
    with (
        stop_flag() as flag,
        local_stack(options.home, flag, console.print) as stack,
        Safactory(stack.plan.urls["scheduler"], stack.plan.urls["dataelf"]) as client,
    ):
        route = _route(options, client, stack)
        job = client.resume(options.resume) if options.resume else client.submit(_request(options, route))
        console.print(f"job {job['job_id']}: {job['planned']} sessions")
        evaluation = _Evaluation(options, client, job, console, started_s)
        try:
            watch = Watch(client, flag, stack.check, console)
            status = watch.until_ended(evaluation.job_id, options.title)
            return evaluation.report(watch.results(evaluation.job_id, status))
        except Interrupted:
            flag.clear()
            evaluation.interrupted(flag)
            return EXIT_INTERRUPTED
        except ServiceError:
            evaluation.failed()
            raise


def check(options: RunOptions) -> None:
    """Refuse what is wrong before anything is started.

    Raises:
        ConfigError: what it is, and what is expected.
    """
    if not options.config.is_file():
        raise ConfigError("is not a file", file=str(options.config))
    if bool(options.base_url) == bool(options.route):
        raise ConfigError("give --base-url with --model, or --route, and not both")
    if options.base_url and not options.model:
        raise ConfigError("--base-url needs --model: the name by which that server knows the model")
    address = urlsplit(options.base_url)
    if options.base_url and (address.scheme not in ("http", "https") or not address.netloc):
        raise ConfigError(f"{options.base_url!r} is no URL such as http://127.0.0.1:8000/v1", field="--base-url")
    if options.base_url and not options.api_key and options.api_key_env != DEFAULT_KEY:
        raise ConfigError(f"the environment has no {options.api_key_env}", field="--api-key-env")
    if options.resume and (options.dataset or options.limit or options.samples != 1):
        raise ConfigError("a resumed job keeps its dataset, samples and limit", field="--resume")
    for name, file in {"--dataset": options.dataset, "--start-config": options.start_config}.items():
        if file and not file.is_file():
            raise ConfigError("is not a file", file=str(file), field=name)
    if options.json_file and not options.json_file.absolute().parent.is_dir():
        raise ConfigError("its folder is not there", file=str(options.json_file), field="--json")


def resume_command(options: RunOptions, job_id: str) -> str:
    """Return the command that goes on with a job: model server and folders as they were given."""
    words = ["safactory", "run", str(options.config)]
    given: dict[str, object] = {"--base-url": options.base_url, "--model": options.model, "--route": options.route}
    given["--api-key-env"] = options.api_key_env if options.api_key_env != DEFAULT_KEY else ""
    given["--json"] = options.json_file
    given["--home"] = options.home if options.home != RunOptions.model_fields["home"].default else ""
    given["--resume"] = job_id
    for name, value in given.items():
        words += [name, str(value)] if value else []
    return shlex.join(words)


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


def _route(options: RunOptions, client: Safactory, stack: LocalStack) -> str:
    """Return the gateway's route for this job, which, for a model server of one's own, is made now."""
    gateway = stack.plan.urls["gateway"]
    asked = str(client.job_spec(options.resume)["route"]) if options.resume else ""
    if options.route:
        routes = client.routes(gateway)
        if options.route not in routes:
            known = ", ".join(routes) or "none; name a file of `llm_routes` in GATEWAY_CONFIG"
            raise ConfigError(f"no route {options.route!r}: the routes are {known}", field="--route")
        if asked and asked != options.route:
            raise ConfigError(f"job {options.resume} asks route {asked!r}", field="--route")
        return options.route
    digest = hashlib.sha256(f"{options.base_url} {options.model}".encode()).hexdigest()[:10]
    name = asked or f"run-{digest}"
    route: Facts = {"base_url": options.base_url, "model": options.model, "api_key": options.api_key}
    client.put_route(gateway, name, route, stack.plan.token_key)
    return name


class _Evaluation:
    """One submitted job, and the ways in which it can come to its end."""

    def __init__(self, options: RunOptions, client: Safactory, job: Facts, console: Console, started_s: float) -> None:
        self._options = options
        self._client = client
        self._job = job
        self._console = console
        self._started_s = started_s
        self.job_id = str(job["job_id"])

    def report(self, results: Facts) -> int:
        """Show the results of a job that is over, and return the exit status."""
        self._show(results)
        if scored(results) == 0:
            self._console.print("no session was scored", style="red")
            return EXIT_UNSCORED
        return 0

    def interrupted(self, flag: StopFlag) -> None:
        """Cancel, show what there is, and say how to go on; a second Ctrl-C waits for nothing more."""
        self._console.print("stopping: waiting for the scores of what has run")
        with contextlib.suppress(SafactoryError, Interrupted):
            self._client.cancel(self.job_id, "interrupted")
            deadline = time.monotonic() + PARTIAL_S
            while (status := self._client.job(self.job_id))["state"] != "ended" and time.monotonic() < deadline:
                flag.sleep(0.2)
            Watch(self._client, flag, lambda: None, self._console).results(self.job_id, status)
        self._show_partial(EndReason.CANCELLED)
        self._console.print(f"interrupted; go on with: {resume_command(self._options, self.job_id)}")

    def failed(self) -> None:
        """Show what there is of a job whose stack has failed."""
        self._show_partial(EndReason.INFRASTRUCTURE_ERROR)
        self._console.print(f"the stack failed; go on with: {resume_command(self._options, self.job_id)}")

    def _show_partial(self, missing: EndReason) -> None:
        try:
            results = self._client.results(self.job_id)
        except SafactoryError:
            results = without_archive(self._job)
        self._show(with_every_session(results, missing))

    def _show(self, results: Facts) -> None:
        wall_s = time.monotonic() - self._started_s
        self._console.print(results_table(results), soft_wrap=False)
        self._console.print(f"wall time {wall_s:.1f} s")
        for cause in causes(results):
            self._console.print(f"without a score: {cause}", markup=False)
        if self._options.json_file:
            self._options.json_file.write_text(json.dumps(results_json(results, wall_s), indent=1) + "\n")
