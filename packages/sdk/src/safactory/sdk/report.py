"""The report of a training run: one self-contained HTML file, its figures as SVG inside."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from safactory.sdk.client import Facts, Safactory
from safactory.sdk.progress import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .3rem .9rem; border-bottom: 1px solid #ddd; text-align: left; }
figure { margin: 2rem 0; } figcaption { color: #555; }
svg { max-width: 100%; height: auto; } .big { font-size: 1.6rem; }
"""


@dataclass
class Evaluation:
    """Success on held-out tasks."""

    job_id: str
    sessions: int
    success: float
    """Share of scored sessions that succeeded."""
    ci95: tuple[float, float]
    endings: dict[str, int]

    @property
    def text(self) -> str:
        """The rate with its interval."""
        return f"{self.success:.2f} (95 % interval {self.ci95[0]:.2f}–{self.ci95[1]:.2f}, {self.sessions} sessions)"


@dataclass
class Run:
    """What the archive has of a training run."""

    run_id: str
    metrics: list[Facts]
    weights: list[Facts]
    rollouts: list[Facts]
    time_spent: Facts
    wall_s: float


@dataclass
class Report:
    """All that the report shows."""

    before: Evaluation
    after: Evaluation
    run: Run
    wall_s: float = field(default=0.0)


def collect_run(client: Safactory, run_id: str) -> Run:
    """Ask the archive for a run."""
    weights, rollouts = client.weights(run_id), client.rollouts(run_id)
    submitted = number(client.job(run_id), "submitted_unix_s")
    ends = [number(fact, "at_unix_s") for fact in (*weights, *rollouts)]
    return Run(
        run_id=run_id,
        metrics=client.metrics(run_id),
        weights=weights,
        rollouts=rollouts,
        time_spent=client.time_spent(run_id),
        wall_s=max(ends, default=submitted) - submitted,
    )


def write_report(report: Report, folder: Path) -> Path:
    """Write `report.html` and return its path."""
    import matplotlib as mpl  # half a second that only a report needs

    mpl.use("svg")
    figures = [
        _figure("Mean reward of each optimiser step (0–1)", _reward_curve, report.run),
        _figure("Staleness: weight versions between a token and the step that trained on it", _staleness, report.run),
        _figure("Weight versions, as they came into service", _versions, report.run),
        _figure("Where the time went, in seconds summed over all sessions", _time, report.run),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.html"
    path.write_text(_page(report, figures))
    return path


def _page(report: Report, figures: list[str]) -> str:
    run = report.run
    verdicts = Counter(str(rollout["type"]).removeprefix("rollout.") for rollout in run.rollouts)
    rows = [
        ("success before", report.before.text),
        ("success after", report.after.text),
        ("optimiser steps", str(len(run.metrics))),
        ("sessions of the training", f"{run.time_spent['sessions']} with {run.time_spent['calls']} model calls"),
        (
            "training time",
            f"{run.wall_s:.0f} s: {number(run.time_spent, 'sessions') / max(run.wall_s, 1):.1f} sessions a second",
        ),
        ("groups", ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())),
        ("weight versions served", str(len(run.weights))),
        ("whole demo", f"{report.wall_s:.0f} s"),
        ("training job", run.run_id),
    ]
    table = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    headline = f"{report.before.success:.0%} → {report.after.success:.0%}"
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Safactory demo</title>"
        f"<style>{STYLE}</style></head><body><h1>FrozenLake, learnt through the loop</h1>"
        f"<p class='big'>Success on held-out maps: {headline}</p><table>{table}</table>"
        f"{''.join(figures)}</body></html>\n"
    )


def _figure(caption: str, draw: Callable[[Axes, Run], None], run: Run) -> str:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3.2), layout="constrained")
    draw(axes, run)
    output = io.StringIO()
    figure.savefig(output, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    svg = output.getvalue()
    return f"<figure>{svg[svg.index('<svg') :]}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _values(run: Run, name: str) -> list[float]:
    return [number(_object(entry["values"]), name) for entry in run.metrics]


def _reward_curve(axes: Axes, run: Run) -> None:
    rewards = _values(run, "reward_mean")
    axes.plot(range(1, len(rewards) + 1), rewards, color="#2a7", marker="o", markersize=3)
    axes.set(xlabel="optimiser step", ylabel="mean reward", ylim=(0, 1))


def _staleness(axes: Axes, run: Run) -> None:
    counts: Counter[int] = Counter()
    for entry in run.metrics:
        for name, value in _object(entry["values"]).items():
            lag = name.removeprefix("staleness_count_")
            if lag != name and isinstance(value, int | float):
                counts[int(lag)] += int(value)
    axes.bar(list(counts), list(counts.values()), color="#27a")
    axes.set(xlabel="versions behind", ylabel="groups", xticks=range(max(counts, default=0) + 1))


def _versions(axes: Axes, run: Run) -> None:
    starts = [number(version, "at_unix_s") for version in run.weights]
    first = min(starts, default=0.0)
    axes.step(
        [start - first for start in starts],
        [number(version, "step") for version in run.weights],
        where="post",
        color="#a52",
    )
    axes.set(xlabel="seconds since the first", ylabel="step of the served version")


def _time(axes: Axes, run: Run) -> None:
    spent = run.time_spent
    calls_s = number(spent, "model_server_s") + number(spent, "gateway_s")
    bars = {
        "model server": number(spent, "model_server_s"),
        "gateway": number(spent, "gateway_s"),
        "runner itself": max(0.0, number(spent, "runner_s") - calls_s),
        "scoring": number(spent, "scoring_s"),
        "trainer: steps": sum(_values(run, "step_s")),
        "trainer: pushes": sum(_values(run, "push_s")),
        "trainer: waiting": sum(_values(run, "idle_s")),
    }
    axes.barh(list(bars), list(bars.values()), color=["#27a"] * 4 + ["#a52"] * 3)
    axes.invert_yaxis()
    axes.set(xlabel="seconds")


def _object(value: JsonValue) -> Facts:
    return value if isinstance(value, dict) else {}
