"""`demo`: the closed loop on real input, before a person's eyes.

A small model of random weights plays FrozenLake; the factory evaluates it on maps it never trains on, trains it, and
evaluates it again. Success: at least `SUCCESS_MIN` after, and at least `GAIN_MIN` times what it was before.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console

from safactory.contracts.errors import ConfigError, ServiceError
from safactory.contracts.jobs import JobRequest, SourceFile, TrainingSpec
from safactory.contracts.statistics import wilson_ci95
from safactory.sdk import stack_file
from safactory.sdk.client import Facts, Safactory
from safactory.sdk.commands.train import training_request
from safactory.sdk.errors_shown import EXIT_FAILED, errors_shown
from safactory.sdk.interrupts import StopFlag, stop_flag
from safactory.sdk.linux_child import start_child
from safactory.sdk.local_stack import own_stack
from safactory.sdk.progress import counts
from safactory.sdk.report import Evaluation, Report, collect_run, write_report
from safactory.sdk.results_table import environments as rows_of
from safactory.sdk.stack import Stack
from safactory.sdk.stack_plan import Policy, plan_stack
from safactory.sdk.watch import Watch

SUCCESS_MIN = 0.7
GAIN_MIN = 3.0
EVALUATION_SAMPLES = 12
SLOTS = 16
"""More sessions at once would make the data older."""
EVALUATION_TEMPERATURE = 0.2
TRAINING_TEMPERATURE = 1.0
TRAINING = TrainingSpec(steps=80, groups_per_step=4, max_staleness=2)
TRAINING_S_MAX = 175.0
"""A slow machine trains on fewer sessions, not for longer."""
RECIPE = {
    "TRAINER_OPTIMISER__LR": "5e-4",
    "TRAINER_OPTIMISER__PASSES": "8",
    "TRAINER_LOSS__ENTROPY_COEF": "0.08",
    "TRAINER_LOSS__ADVANTAGE": "grpo",
    "TRAINER_CHECKPOINT__EVERY_STEPS": "20",
    "DATAELF_FLUSH_INTERVAL_S": "0.2",
}
"""Measured with benchmarks/frozenlake_learning.py."""


def demo(out: Path, home: Path, environments: Path, seed: int) -> int:
    """Run the demo and return the exit status: 0 only when the model has learnt."""
    console = Console()
    started_s = time.monotonic()
    config = environments / "frozenlake" / "frozenlake_config.yaml"
    with errors_shown(), stop_flag() as flag:
        if not config.is_file():
            raise ConfigError(
                "is not there: run the demo in the project's folder, or give --environments", file=str(config)
            )
        if stack_file.read(home) is not None:
            raise ConfigError(f"a demo runs in {home} already")
        shutil.rmtree(home, ignore_errors=True)
        model_dir = _seed_model(home / "model", seed, flag, console)
        plan = plan_stack(home, policy=Policy(model_dir=model_dir), overrides=RECIPE, slots=SLOTS)
        with own_stack(plan, flag, lambda line: console.print(line, highlight=False, soft_wrap=True)) as stack:
            report = _loop(stack, flag, console, config)
        report.wall_s = time.monotonic() - started_s
        path = write_report(report, out)
        return _verdict(report, path, console)


def _seed_model(folder: Path, seed: int, flag: StopFlag, console: Console) -> Path:
    console.print(f"making a small Qwen3-shaped model of random weights in {folder}", highlight=False, soft_wrap=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / "seed_model.log"
    command = [sys.executable, "-m", "safactory.inference.seed_model", str(folder), "--seed", str(seed)]
    child = start_child(command, os.environ, log)
    try:
        while child.poll() is None:
            flag.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    if child.returncode != 0:
        raise ServiceError(f"the model could not be made:\n{log.read_text(errors='replace')}")
    return folder


def _loop(stack: Stack, flag: StopFlag, console: Console, config: Path) -> Report:
    urls = stack.plan.urls
    with Safactory(urls["scheduler"], urls["dataelf"]) as client:
        watch = Watch(client, flag, stack.check, console)
        before = _evaluate(client, watch, console, config, "before training")
        request = training_request(config, TRAINING, samples=None, temperature=TRAINING_TEMPERATURE)
        run_id = str(client.submit(request)["job_id"])
        status = watch.until_ended(run_id, "training on FrozenLake 3×3", seconds_max=TRAINING_S_MAX)
        watch.results(run_id, status)
        run = collect_run(client, run_id)
        console.print(_training_line(status, run.wall_s), highlight=False, soft_wrap=True)
        after = _evaluate(client, watch, console, config, "after training")
        return Report(before=before, after=after, run=run)


def _evaluate(client: Safactory, watch: Watch, console: Console, config: Path, title: str) -> Evaluation:
    held_out = config.parent / "datasets" / "heldout.jsonl"
    request = JobRequest(
        agent_config=SourceFile(path=str(config.absolute())),
        dataset=str(held_out.absolute()),
        samples=EVALUATION_SAMPLES,
        temperature=EVALUATION_TEMPERATURE,
        session_timeout_s=60,
    )
    job_id = str(client.submit(request)["job_id"])
    results = watch.results(job_id, watch.until_ended(job_id, f"held-out maps, {title}"))
    evaluation = _evaluation(results)
    console.print(f"held-out maps, {title}: {evaluation.text}", highlight=False)
    return evaluation


def _evaluation(results: Facts) -> Evaluation:
    (row,) = rows_of(results)
    endings = row["endings"]
    reasons = {reason: int(str(count)) for reason, count in endings.items()} if isinstance(endings, dict) else {}
    scored = int(str(row["scored"]))
    if scored == 0:
        raise ServiceError(f"no held-out session was scored: {json.dumps(results.get('causes'))}")
    rate = reasons.get("succeeded", 0) / scored
    interval = wilson_ci95(scored, rate)
    return Evaluation(str(results["job_id"]), scored, rate, ci95=interval, endings=reasons)


def _training_line(status: Facts, wall_s: float) -> str:
    sessions = sum(counts(status).values())
    pace = f"{sessions} sessions in {wall_s:.0f} s ({sessions / wall_s:.1f} a second)"
    return f"trained {status['steps_done']} steps on {pace}"


def _verdict(report: Report, path: Path, console: Console) -> int:
    before, after = report.before, report.after
    console.print(f"success on held-out maps: {before.text} before, {after.text} after", highlight=False)
    console.print(f"report: {path}   ({report.wall_s:.0f} s in all)", highlight=False, soft_wrap=True)
    learnt = after.success >= SUCCESS_MIN and after.success >= GAIN_MIN * before.success
    if not learnt:
        console.print(f"not learnt: expected at least {SUCCESS_MIN} and {GAIN_MIN:g} times before", style="red")
    return 0 if learnt else EXIT_FAILED
