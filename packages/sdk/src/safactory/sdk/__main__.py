"""The `safactory` command: one function a subcommand; each imports what it needs only when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="safactory",
    help="Run agents against environments, record every model call, score, train, and go on with the new weights."
    "\n\nExample: safactory demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
jobs_app = typer.Typer(
    help="Look at jobs, cancel and resume them.\n\nExample: safactory jobs list", no_args_is_help=True
)
sessions_app = typer.Typer(
    help="Look at sessions and their trajectories.\n\nExample: safactory sessions list 3f0c…", no_args_is_help=True
)
app.add_typer(jobs_app, name="jobs")
app.add_typer(sessions_app, name="sessions")

Home = Annotated[Path, typer.Option(help="Folder of the local stack: archive, objects, logs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Config = Annotated[Path, typer.Argument(help="An agent configuration, e.g. environments/math/math_config.yaml.")]
HOME = Path(".safactory")


def main() -> None:
    """Run the command."""
    app()


@app.command()
def up(
    home: Home = HOME,
    model_dir: Annotated[
        Path | None, typer.Option(help="Serve this Hugging Face directory as route `default`.")
    ] = None,
    train: Annotated[bool, typer.Option(help="With --model-dir: also start the trainer.")] = False,
    foreground: Annotated[bool, typer.Option(help="Stay, and stop the stack with Ctrl-C.")] = False,
) -> None:
    """Start a local stack that stays up.

    Example: safactory up --model-dir out/demo/model
    """
    from safactory.sdk.commands import stack

    raise SystemExit(stack.up(home, model_dir, train=train, foreground=foreground))


@app.command()
def down(home: Home = HOME) -> None:
    """Stop the local stack. Its archive stays.

    Example: safactory down
    """
    from safactory.sdk.commands import stack

    raise SystemExit(stack.down(home))


@app.command()
def status(home: Home = HOME, as_json: AsJson = False) -> None:
    """Show the local stack: processes, addresses, readiness.

    Example: safactory status --json
    """
    from safactory.sdk.commands import stack

    raise SystemExit(stack.status(home, as_json=as_json))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("out/demo"),
    home: Home = HOME / "demo",
    environments: Annotated[Path, typer.Option(help="Folder of the environments.")] = Path("environments"),
    seed: Annotated[int, typer.Option(help="Of the model's random weights.")] = 2,
) -> None:
    """Train a small model on FrozenLake with the whole factory, before your eyes, in a few minutes.

    Example: safactory demo
    """
    from safactory.sdk.commands.demo import demo as run_demo

    raise SystemExit(run_demo(out, home, environments, seed))


@app.command()
def run(
    config: Config,
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible server, up to and including /v1.")] = "",
    model: Annotated[str, typer.Option(help="The name by which that server knows the model.")] = "",
    route: Annotated[str, typer.Option(help="A configured route instead of --base-url.")] = "",
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the API key.")] = "OPENAI_API_KEY",
    dataset: Annotated[Path | None, typer.Option(help="A dataset instead of the configuration's.")] = None,
    start_config: Annotated[Path | None, typer.Option(help="Default: X_start.yaml beside X_config.yaml.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Sessions a task.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Tasks of each environment; default: all.")] = None,
    max_steps: Annotated[int, typer.Option(min=-1, help="Model calls a session; -1: no limit.")] = -1,
    temperature: Annotated[float, typer.Option(min=0)] = 1.0,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds a session may take.")] = 600.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the table's numbers here.")] = None,
    resume: Annotated[str, typer.Option(help="Go on with this job: run again what has no score.")] = "",
    home: Home = HOME,
) -> None:
    """Evaluate an agent configuration against any OpenAI-compatible model server.

    Starts a local stack for as long as it takes, when none is up. Exit status: 0 when at least one session was scored,
    3 when none was, 2 for a bad command, configuration or dataset, 130 after Ctrl-C.

    Example: safactory run environments/math/math_config.yaml --base-url http://127.0.0.1:8000/v1 --model qwen
    """
    from safactory.sdk.errors_shown import errors_shown
    from safactory.sdk.evaluation import RunOptions
    from safactory.sdk.evaluation import run as evaluate

    with errors_shown():
        raise SystemExit(
            evaluate(
                RunOptions(
                    config=config,
                    base_url=base_url,
                    model=model,
                    route=route,
                    api_key_env=api_key_env,
                    dataset=dataset,
                    start_config=start_config,
                    samples=samples,
                    limit=limit,
                    max_steps=max_steps,
                    temperature=temperature,
                    timeout_s=timeout_s,
                    json_file=json_file,
                    resume=resume,
                    home=home,
                )
            )
        )


@app.command()
def train(
    config: Config,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 30,
    groups_per_step: Annotated[int, typer.Option(min=1)] = 8,
    max_staleness: Annotated[int, typer.Option(min=0, help="Weight versions a rollout may lag behind.")] = 4,
    samples: Annotated[int | None, typer.Option(min=1, help="Sessions a group; default: env_num.")] = None,
    temperature: Annotated[float, typer.Option(min=0)] = 1.0,
    home: Home = HOME,
) -> None:
    """Train the model of the running stack on an environment.

    Example: safactory up --model-dir MODEL --train && safactory train environments/frozenlake/frozenlake_config.yaml
    """
    from safactory.contracts.jobs import TrainingSpec
    from safactory.sdk.commands.train import train as run_training

    training = TrainingSpec(steps=steps, groups_per_step=groups_per_step, max_staleness=max_staleness)
    raise SystemExit(run_training(config, training, samples, temperature, home))


@jobs_app.command("list")
def jobs_list(home: Home = HOME, as_json: AsJson = False) -> None:
    """List every job in the archive.

    Example: safactory jobs list
    """
    from safactory.sdk.commands import jobs

    raise SystemExit(jobs.list_jobs(home, as_json=as_json))


@jobs_app.command("show")
def jobs_show(job_id: str, home: Home = HOME, as_json: AsJson = False) -> None:
    """Show a job's result table.

    Example: safactory jobs show 3f0c… --json
    """
    from safactory.sdk.commands import jobs

    raise SystemExit(jobs.show(job_id, home, as_json=as_json))


@jobs_app.command("cancel")
def jobs_cancel(job_id: str, home: Home = HOME) -> None:
    """Stop a job; what has run is still scored.

    Example: safactory jobs cancel 3f0c…
    """
    from safactory.sdk.commands import jobs

    raise SystemExit(jobs.cancel(job_id, home))


@jobs_app.command("resume")
def jobs_resume(job_id: str, home: Home = HOME) -> None:
    """Run again what a job did not score.

    Example: safactory jobs resume 3f0c…
    """
    from safactory.sdk.commands import jobs

    raise SystemExit(jobs.resume(job_id, home))


@sessions_app.command("list")
def sessions_list(
    job_id: str,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """List a job's sessions, the newest first.

    Example: safactory sessions list 3f0c… --limit 10
    """
    from safactory.sdk.commands import sessions

    raise SystemExit(sessions.list_sessions(job_id, limit, home, as_json=as_json))


@sessions_app.command("show")
def sessions_show(session_id: str, home: Home = HOME, as_json: AsJson = False) -> None:
    """Print a session's trajectory.

    Example: safactory sessions show 01936f5e-8c4e-7b1a-9d2f-000000000001
    """
    from safactory.sdk.commands import sessions

    raise SystemExit(sessions.show(session_id, home, as_json=as_json))


@app.command()
def replay(
    topic: Annotated[str, typer.Argument(help="E.g. safactory.step.v1, or its .dlq.")],
    start: Annotated[str, typer.Option("--from", help="An offset, or a time (2026-11-29T10:00:00Z).")] = "0",
    end: Annotated[str, typer.Option("--to", help="An offset or a time; default: the end as it is now.")] = "",
    to_file: Annotated[Path | None, typer.Option(help="Write JSON lines here instead of to stdout.")] = None,
    to_topic: Annotated[str, typer.Option(help="Publish the records to this topic: feeds dead letters back.")] = "",
    group: Annotated[str, typer.Option(help="Set this fresh consumer group to the range's start instead.")] = "",
    servers: Annotated[str, typer.Option(help="Broker; default: the running stack's.")] = "",
    home: Home = HOME,
) -> None:
    """Read a range of a topic again, bounded at both ends.

    Example: safactory replay safactory.step.v1 --from 0 --to 100 --to-file steps.jsonl
    """
    from safactory.sdk.commands.replay import Target, replay_topic

    target = Target(file=to_file, topic=to_topic, group=group)
    raise SystemExit(replay_topic(topic, (start, end), target, servers, home))


@app.command()
def audit(job_id: str, home: Home = HOME, as_json: AsJson = False) -> None:
    """Check that the archive has all of a job; exit 1 and a list where it has not.

    Example: safactory audit 3f0c…
    """
    from safactory.sdk.commands import jobs

    raise SystemExit(jobs.audit(job_id, home, as_json=as_json))


if __name__ == "__main__":
    main()
