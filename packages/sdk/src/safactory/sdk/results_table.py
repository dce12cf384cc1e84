"""The result table of a job, for a person and as JSON."""

from __future__ import annotations

from rich import box
from rich.table import Table

from safactory.contracts.endings import EndReason
from safactory.sdk.calls import Facts
from safactory.sdk.progress import number


def results_table(results: Facts) -> Table:
    """Return one row an environment: endings, scores with their interval, tokens; fits into 80 columns."""
    table = Table(title=f"job {results['job_id']}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.padding = (0, 1, 0, 0)
    table.add_column("environment", overflow="fold", min_width=11)
    table.add_column("sessions\nby ending", no_wrap=True)
    table.add_column("scored of\nplanned", justify="right", no_wrap=True)
    table.add_column("reward\n(0–10)", justify="right", no_wrap=True)
    table.add_column("fraction\n(95 %)", justify="right", no_wrap=True)
    table.add_column("tokens\nin, out", justify="right", no_wrap=True)
    for row in environments(results):
        table.add_row(
            str(row["name"]),
            "\n".join(f"{reason} {count}" for reason, count in endings_of(row).items()) or "none yet",
            f"{row['scored']} of {row['planned']}",
            "–" if row["mean_reward"] is None else f"{number(row, 'mean_reward'):.2f}",
            fraction_text(row).replace(" (", "\n("),
            f"{row['prompt_tokens']}\n{row['completion_tokens']}",
        )
    return table


def fraction_text(row: Facts) -> str:
    """Return the mean fraction with its interval."""
    if row["mean_fraction"] is None:
        return "–"
    interval = row["ci95"]
    around = f" ({float(str(interval[0])):.2f}–{float(str(interval[1])):.2f})" if isinstance(interval, list) else ""
    return f"{number(row, 'mean_fraction'):.3f}{around}"


def environments(results: Facts) -> list[Facts]:
    """Return the rows."""
    rows = results["environments"]
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def endings_of(row: Facts) -> dict[str, int]:
    """Return an environment's sessions by ending, the commonest first."""
    endings = row["endings"]
    counts = {reason: int(str(count)) for reason, count in endings.items()} if isinstance(endings, dict) else {}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def with_every_session(results: Facts, reason: EndReason) -> Facts:
    """Return the results with the planned sessions that have no ending yet under this one."""
    rows: list[Facts] = []
    for row in environments(results):
        endings = endings_of(row)
        missing = int(number(row, "planned")) - sum(endings.values())
        if missing > 0:
            endings[reason.value] = endings.get(reason.value, 0) + missing
        rows.append(row | {"endings": dict(endings)})
    return results | {"environments": list(rows)}


def without_archive(status: Facts) -> Facts:
    """Return a result table of what the scheduler alone knows: how many sessions each environment has."""
    planned = status["environments"]
    rows: list[Facts] = [
        {
            "name": name,
            "planned": count,
            "scored": 0,
            "endings": {},
            "mean_reward": None,
            "mean_fraction": None,
            "ci95": None,
            "prompt_tokens": 0,
            "completion_tokens": 0,
        }
        for name, count in (planned.items() if isinstance(planned, dict) else ())
    ]
    return {"job_id": status["job_id"], "environments": list(rows), "causes": []}


def results_json(results: Facts, wall_s: float) -> Facts:
    """Return what `--json` writes."""
    return {"job_id": results["job_id"], "wall_s": round(wall_s, 3), "environments": results["environments"]}


def scored(results: Facts) -> int:
    """Return how many sessions have a score."""
    return sum(int(number(row, "scored")) for row in environments(results))


def causes(results: Facts) -> list[str]:
    """Return why sessions have no score, the commonest first."""
    found = results.get("causes")
    return [str(cause) for cause in found] if isinstance(found, list) else []
