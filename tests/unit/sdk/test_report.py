from __future__ import annotations

import re
from pathlib import Path

from safactory.sdk.report import Evaluation, Report, Run, write_report


def a_run(steps: int = 3) -> Run:
    return Run(
        run_id="run-<1>",
        metrics=[
            {"step": n, "values": {"reward_mean": n / steps, "idle_s": 0.1, "step_s": 0.5, "staleness_count_1": 4}}
            for n in range(1, steps + 1)
        ],
        weights=[{"version": f"0.{n}", "step": n, "at_unix_s": 100.0 + n} for n in range(steps)],
        rollouts=[{"type": "rollout.ready", "at_unix_s": 101.0}, {"type": "rollout.dropped", "at_unix_s": 101.0}],
        time_spent={"sessions": 96, "calls": 300, "model_server_s": 20.0, "gateway_s": 1.0, "runner_s": 30.0},
        wall_s=20.0,
    )


def an_evaluation(success: float) -> Evaluation:
    return Evaluation("job-1", 132, success, (0.1, 0.9), {"succeeded": 10})


def test_the_report_is_one_file_that_asks_the_network_for_nothing(tmp_path: Path) -> None:
    path = write_report(Report(an_evaluation(0.05), an_evaluation(0.85), a_run(), wall_s=99), tmp_path / "out")
    page = path.read_text()
    assert page.count("<svg") == page.count("</svg>") == 4
    assert not re.search(r"""(src|href)\s*=\s*["']\s*(https?:)?//""", page)
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\(\s*['\"]?http", page)
    assert "5% → 85%" in page and "132 sessions" in page and "96 with 300 model calls" in page
    assert "1 ready, 1 dropped" in page
    assert "run-&lt;1&gt;" in page, "what comes from outside is escaped"


def test_a_run_without_a_single_step_has_a_report_too(tmp_path: Path) -> None:
    run = a_run(steps=0)
    assert write_report(Report(an_evaluation(0.0), an_evaluation(0.0), run), tmp_path).is_file()
