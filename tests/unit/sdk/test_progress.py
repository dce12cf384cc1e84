from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from safactory.sdk.progress import PLAIN_EVERY_S, Sight, panel, plain_lines, screen, sparkline

MakeFacts = Any
LONG = {"succeeded": 1200, "failed": 312, "truncated_steps": 20, "infrastructure_error": 4, "gateway_error": 11}


def test_plain_lines_say_who_runs_and_how_sessions_ended(a_status: MakeFacts) -> None:
    text = plain_lines(Sight("math", a_status()))
    flat = " ".join(text.split())
    assert "math: 17 of 40 ended (failed 5 succeeded 12), 16 running, 3 scoring" in flat
    assert "mean reward 7.06 of 10" in flat


def test_plain_lines_of_a_training_say_all_that_the_panel_shows(a_status: MakeFacts) -> None:
    status = a_status(steps_wanted=55, steps_done=12, groups={"admitted": 60, "ready": 52, "dropped": 3}, ended=LONG)
    sight = Sight("training", status, rewards=[0.0, 0.5, 1.0], version="0.12", trainer_idle=0.03, rollout_idle=0.1)
    flat = " ".join(plain_lines(sight).split())
    for part in ("52 groups complete", "step 12 of 55", "weights 0.12", "mean reward 1.00 ▁▅█", "trainer idle 3%"):
        assert part in flat
    assert "rollout idle 10%" in flat


@pytest.mark.parametrize("ended", [{}, LONG])
@pytest.mark.parametrize("rewards", [[], [0.5] * 100])
def test_plain_lines_keep_to_80_columns(a_status: MakeFacts, ended: dict[str, int], rewards: list[float]) -> None:
    sight = Sight("held-out maps, before training", a_status(ended=ended, steps_wanted=9), rewards=rewards)
    assert max(len(line) for line in plain_lines(sight).splitlines()) <= 80


def test_a_sparkline_shows_the_newest_values_and_clips() -> None:
    assert sparkline([0.0, 0.5, 1.0, 2.0, -1.0]) == "▁▅██▁"
    assert len(sparkline([0.5] * 100)) == 32


def test_the_panel_shows_a_training(a_status: MakeFacts) -> None:
    sight = Sight("training", a_status(steps_wanted=55, retried=2, retry_cause="[why]"), rewards=[0.5], version="0.3")
    output = io.StringIO()
    Console(file=output, width=100).print(panel(sight))
    shown = output.getvalue()
    for part in ("16 running · 3 scoring · 4 queued", "17 of 40", "version 0.3 is served", "2 attempts", "[why]"):
        assert part in shown


def test_a_pipe_gets_plain_lines_now_and_then_and_each_cause_of_a_retry_once(
    a_status: MakeFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    with screen(Console(file=output)) as shown:
        for _ in range(4):
            shown.show(Sight("math", a_status(retried=3, retry_cause="model server is [away]")))
            now_s += PLAIN_EVERY_S / 2
    assert output.getvalue().count("math:") == 2
    assert output.getvalue().count("retrying: model server is [away]") == 1
