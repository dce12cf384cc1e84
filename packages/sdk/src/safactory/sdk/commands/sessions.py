"""`sessions …`: trajectories that a person can read."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from safactory.contracts.messages import Message
from safactory.contracts.trajectory import Trajectory
from safactory.sdk.calls import Facts
from safactory.sdk.commands.jobs import connected


def list_sessions(job_id: str, limit: int, home: Path, *, as_json: bool) -> int:
    """List a job's sessions."""
    with connected(home) as client:
        rows = client.sessions(job_id, limit)
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    console = Console(highlight=False, soft_wrap=True)
    for row in rows:
        score = "no score" if row["score"] is None else f"score {float(str(row['score'])):.2f} of 10"
        counted = f"attempt {row['attempt']}, {row['last_seq']} steps, {float(str(row['wall_s'])):.2f} s"
        console.print(f"{row['session_id']} {row['environment']}: [bold]{row['reason']}[/], {score}, {counted}")
        if row["cause"]:
            console.print(f"    [dim]{escape(str(row['cause']))}[/]")
    return 0


def show(session_id: str, home: Path, *, as_json: bool) -> int:
    """Print one session."""
    with connected(home) as client:
        view = client.session(session_id)
    if as_json:
        print(json.dumps(view, indent=1))
        return 0
    console = Console(highlight=False, soft_wrap=True)
    _print_head(view, console)
    if view["trajectory"] is not None:
        _print_steps(Trajectory.model_validate(view["trajectory"]), console)
    rewards = view["rewards"]
    for reward in rewards if isinstance(rewards, list) else []:
        if isinstance(reward, dict):
            score = f"{float(str(reward['score'])):.2f} of 10" if reward["scored"] else f"no score: {reward['error']}"
            console.print(
                f"[bold]{reward['scorer']}[/] attempt {reward['attempt']}: {score} {escape(str(reward['reason']))}"
            )
    return 0


def _print_head(view: Facts, console: Console) -> None:
    console.print(
        f"[bold]session {view['session_id']}[/]" + ("  [red]has a gap: see its dead letters[/]" if view["gap"] else "")
    )
    events = view["events"]
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict):
            said = " ".join(str(event[name]) for name in ("reason", "cause") if event[name])
            console.print(f"[dim]{event['at']}[/] attempt {event['attempt']} {event['type']} {escape(said)}")


def _print_steps(trajectory: Trajectory, console: Console) -> None:
    seen: set[str] = set()
    for step in trajectory.steps:
        console.print(f"\n[cyan]step {step.seq}[/] [dim]{step.status} {step.finish_reason}[/]")
        for message in step.messages:
            if message.sha256 not in seen:
                _print_message(message, console)
            seen.add(message.sha256)
        if step.response is not None:
            _print_message(step.response, console)
            seen.add(step.response.sha256)


def _print_message(message: Message, console: Console) -> None:
    text = message.text or json.dumps({k: v for k, v in message.body.items() if k not in ("role", "content")})
    console.print(f"  [bold]{message.role}[/]: {escape(text)}", soft_wrap=True)
