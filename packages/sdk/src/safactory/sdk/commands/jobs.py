"""`jobs …` and `audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from safactory.sdk import stack_file
from safactory.sdk.calls import Facts
from safactory.sdk.client import Safactory
from safactory.sdk.errors_shown import errors_shown
from safactory.sdk.progress import counts
from safactory.sdk.results_table import causes, results_table


@contextmanager
def connected(home: Path) -> Iterator[Safactory]:
    """Yield a client of the running stack."""
    with errors_shown():
        urls = stack_file.require(home).plan.urls
        with Safactory(urls["scheduler"], urls["dataelf"]) as client:
            yield client


def list_jobs(home: Path, *, as_json: bool) -> int:
    """List the archive's jobs, with what the scheduler knows of those that it works on."""
    with connected(home) as client:
        known = {str(status["job_id"]): status for status in client.jobs()}
        archived = client.archived_jobs()
    rows: list[Facts] = [row | {"status": known.pop(str(row["job_id"]), None)} for row in archived]
    # The newest may not be archived yet.
    unseen: list[Facts] = [{"job_id": job_id, "status": status} for job_id, status in known.items()]
    rows = [*unseen, *rows]
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("job", no_wrap=True)
    table.add_column("submitted (UTC)", no_wrap=True)
    table.add_column("state", overflow="fold")
    for row in rows:
        submitted = str(row.get("submitted_at", "just now"))
        table.add_row(str(row["job_id"]), submitted.partition(".")[0], _state(row))
    Console().print(table)
    return 0


def _state(row: Facts) -> str:
    status = row["status"]
    if not isinstance(status, dict):
        return "ended" if row["state"] == "ended" else "left open: `safactory jobs resume`"
    ended = f"{sum(counts(status).values())} of {status['planned']}"
    return f"ended ({ended})" if status["state"] == "ended" else f"{status['state']} ({ended} ended)"


def show(job_id: str, home: Path, *, as_json: bool) -> int:
    """Show one job's results."""
    with connected(home) as client:
        results = client.results(job_id)
    if as_json:
        print(json.dumps(results, indent=1))
        return 0
    console = Console()
    console.print(results_table(results))
    for cause in causes(results):
        console.print(f"without a score: {cause}", highlight=False, soft_wrap=True, markup=False)
    return 0


def cancel(job_id: str, home: Path) -> int:
    """Stop one job."""
    with connected(home) as client:
        print(f"{job_id}: {client.cancel(job_id, 'cancelled by a person')['state']}")
    return 0


def resume(job_id: str, home: Path) -> int:
    """Go on with one job."""
    with connected(home) as client:
        status = client.resume(job_id)
        print(f"{job_id}: {status['state']}, {status['queued']} sessions queued")
    return 0


def audit(job_id: str, home: Path, *, as_json: bool) -> int:
    """Check one job."""
    with connected(home) as client:
        answer = client.audit(job_id)
    findings = answer["findings"]
    found = [str(finding) for finding in findings] if isinstance(findings, list) else []
    if as_json:
        print(json.dumps(answer, indent=1))
    else:
        for finding in found:
            print(f"SHORT {finding}")
        sums = f"{answer['ended']} of {answer['planned']} sessions ended, {answer['steps']} steps"
        print(f"{'incomplete' if found else 'complete'}: {sums}, {answer['ledger_records']} records in the ledger")
    return int(bool(found))
