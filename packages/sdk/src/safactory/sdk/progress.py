"""Progress of a job, where a person looks for it: one live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from safactory.sdk.calls import Facts

PLAIN_EVERY_S = 5.0
COLUMNS = 80
SPARKS = "▁▂▃▄▅▆▇█"


@dataclass
class Sight:
    """What is shown."""

    title: str
    status: Facts
    rewards: list[float] = field(default_factory=list)
    """Mean reward fraction of each optimiser step."""
    version: str = ""
    trainer_idle: float | None = None
    """Share of the last step's time in which the trainer waited for groups."""
    rollout_idle: float | None = None
    """Share of the workers' slots that had no session, lately."""
    started_s: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> int:
        """Sessions with an ending."""
        return sum(counts(self.status).values())


def counts(status: Facts) -> dict[str, int]:
    """Return a job's endings by reason."""
    ended = status.get("ended")
    return {reason: int(str(count)) for reason, count in ended.items()} if isinstance(ended, dict) else {}


def number(status: Facts, name: str) -> float:
    """Return a number of a status; 0 when it has none."""
    value = status.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def sparkline(values: list[float], width: int = 32) -> str:
    """Draw values from 0 to 1."""
    return "".join(SPARKS[min(len(SPARKS) - 1, max(0, int(value * len(SPARKS))))] for value in values[-width:])


def plain_lines(sight: Sight) -> str:
    """Return the same as text of at most 80 columns."""
    status = sight.status
    endings = " ".join(f"{reason} {count}" for reason, count in sorted(counts(status).items()))
    planned = int(number(status, "planned"))
    parts = [
        f"{sight.title}: {sight.ended} of {planned} ended" + (f" ({endings})" if endings else ""),
        f"{int(number(status, 'running'))} running",
        f"{int(number(status, 'scoring'))} scoring",
    ]
    if number(status, "retried"):
        parts.append(f"{int(number(status, 'retried'))} retried")
    if number(status, "steps_wanted"):
        parts += _training(sight)
    elif status.get("mean_score") is not None:
        parts.append(f"mean reward {number(status, 'mean_score'):.2f} of 10")
    if sight.rollout_idle is not None:
        parts.append(f"rollout idle {sight.rollout_idle:.0%}")
    time_s = f"{time.monotonic() - sight.started_s:5.0f} s  "
    return textwrap.fill(", ".join(parts), COLUMNS, initial_indent=time_s, subsequent_indent=" " * len(time_s))


def _training(sight: Sight) -> list[str]:
    status = sight.status
    reward = f"{sight.rewards[-1]:.2f}" if sight.rewards else "–"
    idle = "–" if sight.trainer_idle is None else f"{sight.trainer_idle:.0%}"
    groups = status.get("groups")
    ready = groups.get("ready") if isinstance(groups, dict) else 0
    return [
        f"{ready} groups complete",
        f"step {int(number(status, 'steps_done'))} of {int(number(status, 'steps_wanted'))}",
        f"weights {sight.version or '–'}",
        f"mean reward {reward} {sparkline(sight.rewards)}".rstrip(),
        f"trainer idle {idle}",
    ]


def panel(sight: Sight) -> Panel:
    """Return the live view."""
    status = sight.status
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=14)
    table.add_column()
    running, scoring, queued = (int(number(status, name)) for name in ("running", "scoring", "queued"))
    table.add_row("sessions", f"{running} running · {scoring} scoring · {queued} queued")
    endings = " · ".join(f"{reason} {count}" for reason, count in sorted(counts(status).items()))
    table.add_row("ended", f"{sight.ended} of {int(number(status, 'planned'))}   {endings}")
    groups = status.get("groups")
    if isinstance(groups, dict) and number(status, "steps_wanted"):
        table.add_row(
            "groups",
            f"{groups.get('ready')} complete · {groups.get('dropped')} dropped · {groups.get('admitted')} admitted",
        )
        table.add_row("trainer", f"step {int(number(status, 'steps_done'))} of {int(number(status, 'steps_wanted'))}")
        table.add_row("weights", f"version {sight.version or '–'} is served")
        reward = f"{sight.rewards[-1]:.2f}" if sight.rewards else "–"
        table.add_row("mean reward", Text(f"{reward}  {sparkline(sight.rewards)}", style="green"))
        table.add_row("trainer idle", "–" if sight.trainer_idle is None else f"{sight.trainer_idle:.0%}")
    elif status.get("mean_score") is not None:
        table.add_row("mean reward", f"{number(status, 'mean_score'):.2f} of 10")
    if cause := status.get("retry_cause"):
        table.add_row("retried", Text(f"{int(number(status, 'retried'))} attempts, the last because: {cause}"))
    table.add_row("rollout idle", "–" if sight.rollout_idle is None else f"{sight.rollout_idle:.0%}")
    footer = Text(f"{time.monotonic() - sight.started_s:.0f} s", style="dim")
    return Panel(Group(table, footer), title=sight.title, border_style="cyan")


class Screen:
    """Shows sights until it is closed."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._said_s = -PLAIN_EVERY_S
        self._retry_cause = ""

    def show(self, sight: Sight) -> None:
        """Show the newest state; plain lines come at most every few seconds."""
        if self._live is not None:
            self._live.update(panel(sight), refresh=True)
        elif time.monotonic() - self._said_s >= PLAIN_EVERY_S:
            self._said_s = time.monotonic()
            self._say(plain_lines(sight))
            cause = str(sight.status.get("retry_cause", ""))
            if cause != self._retry_cause:
                self._retry_cause = cause
                self._say(f"         retrying: {cause}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def screen(console: Console) -> Iterator[Screen]:
    """Open the live panel on a terminal; nothing elsewhere."""
    if not console.is_terminal:
        yield Screen(console, None)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(console, live)
