"""The result table of a job, for a person and as JSON."""

from __future__ import annotations

from rich.table import Table
from safactory.sdk.client import Facts
from safactory.sdk.progress import number


def results_table(results: Facts) -> Table:
    """Return one row an environment: endings, scores with their interval, tokens."""
    table = Table(title=f"job {results['job_id']}", title_justify="left")
    columns = (
        "environment",
        "planned",
        "scored",
        "endings",
        "mean reward (0–10)",
        "fraction (95 % interval)",
        "tokens in + out",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("environment", "endings") else "right")
    for row in environments(results):
        endings = row["endings"]
        said = ", ".join(f"{reason} {count}" for reason, count in endings.items()) if isinstance(endings, dict) else ""
        table.add_row(
            str(row["name"]),
            str(row["planned"]),
            str(row["scored"]),
            said or "none yet",
            "–" if row["mean_reward"] is None else f"{number(row, 'mean_reward'):.2f}",
            fraction_text(row),
            f"{row['prompt_tokens']} + {row['completion_tokens']}",
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
