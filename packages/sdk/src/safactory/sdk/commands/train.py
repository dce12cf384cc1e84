"""`train`: a training job on the running stack."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from safactory.contracts.errors import ConfigError
from safactory.contracts.jobs import JobMode, JobRequest, SourceFile, TrainingSpec
from safactory.sdk import stack_file
from safactory.sdk.client import Safactory
from safactory.sdk.errors_shown import EXIT_FAILED, EXIT_INTERRUPTED, errors_shown
from safactory.sdk.interrupts import Interrupted, stop_flag
from safactory.sdk.progress import number
from safactory.sdk.watch import Watch


def train(config: Path, training: TrainingSpec, samples: int | None, temperature: float, home: Path) -> int:
    """Submit a training job and follow it to its last step."""
    console = Console()
    with errors_shown(), stop_flag() as flag:
        plan = stack_file.require(home).plan
        if "trainer" not in plan.urls:
            raise ConfigError(
                "the running stack has no trainer: `safactory down`, then `safactory up --model-dir … --train`"
            )
        with Safactory(plan.urls["scheduler"], plan.urls["dataelf"]) as client:
            request = training_request(config, training, samples=samples, temperature=temperature)
            job_id = str(client.submit(request)["job_id"])
            console.print(f"training job {job_id}", highlight=False)
            try:
                watch = Watch(client, flag, lambda: None, console)
                status = watch.until_ended(job_id, config.stem.removesuffix("_config"))
            except Interrupted:
                client.cancel(job_id, "interrupted")
                console.print(f"cancelled; go on with: safactory jobs resume {job_id}", highlight=False)
                return EXIT_INTERRUPTED
            versions = client.weights(job_id)
            last = versions[-1] if versions else {"version": "none", "checkpoint": ""}
            console.print(
                f"{status['steps_done']} steps; weights {last['version']} {last['checkpoint']}", highlight=False
            )
            if number(status, "steps_done") < training.steps:
                console.print(f"ended early: {status['cause']}", style="red", markup=False)
                return EXIT_FAILED
    return 0


def training_request(config: Path, training: TrainingSpec, *, samples: int | None, temperature: float) -> JobRequest:
    """Return the job."""
    return JobRequest(
        agent_config=SourceFile(path=str(config.absolute())),
        mode=JobMode.TRAIN,
        samples=samples,
        temperature=temperature,
        session_timeout_s=60,
        group_deadline_s=120,
        training=training,
    )
