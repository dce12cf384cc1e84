"""Rule evaluators in real scoring processes, good ones and every kind of bad one."""

from __future__ import annotations

import asyncio
import hashlib
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from safactory.evaluator.scorers.base import Judgement, Scorer
from safactory.evaluator.scorers.rule import RuleScorer
from safactory.evaluator.scoring_pool import ScoringPool
from safactory.evaluator.settings import EvaluatorSettings

MakeCase = Any


def rule(folder: Path, source: str, name: str = "env") -> Path:
    """Write an evaluator."""
    path = folder / name / "rule_evaluator.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path


async def judge(scorer: Scorer, make_case: MakeCase, path: Path, **changes: object) -> Judgement:
    return await scorer.score(make_case(path, **changes))


@pytest.mark.parametrize(
    "source",
    [
        "def evaluate(request, spec, trajectory):\n    return 6",
        "async def evaluate(request, spec, trajectory):\n    return {'score': 6}",
        "def evaluate_rule(request, spec, trajectory):\n    return 6\ndef evaluate(*_):\n    return 1",
        "class RuleEvaluator:\n    def evaluate(self, request, spec, trajectory):\n        return 6",
        "import asyncio\nclass RuleEvaluator:\n    async def evaluate(self, request, spec, trajectory):\n"
        "        await asyncio.sleep(0)\n        return {'normalized_score_10': 6}",
    ],
)
async def test_every_form_of_the_convention_is_called(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path, source: str
) -> None:
    path = rule(tmp_path, source)
    judgement = await judge(scorer, make_case, path)
    assert judgement.answer.verdict is not None and judgement.answer.verdict.score == 6
    assert judgement.scorer_version == hashlib.sha256(path.read_bytes()).hexdigest()


async def test_an_evaluator_reads_all_that_the_convention_names(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path
) -> None:
    source = """
    def evaluate(request, spec, trajectory):
        step = trajectory.steps[0]
        assert request.env_params["dataset"]["answer"] == "42" == request.dataset["answer"]
        assert request.start_result.metrics == {"moves": 4}
        assert request.session_id == trajectory.session_id == "s1"
        assert trajectory.final_response == step.response == step.text == step["response"] == "right"
        assert step.messages == [{"role": "user", "content": "where to?"}]
        assert step.message["role"] == "assistant" and step.get("nothing", 7) == 7
        assert spec.env_name == "test" and spec["pass_score"] == 10 and spec.get("timeout_s") == 10
        return {"score": 9, "reason": "good", "artifacts": {"n": [1]}, "raw_score": 0.9}
    """
    answer = (await judge(scorer, make_case, rule(tmp_path, source))).answer
    assert answer.error == ""
    assert answer.verdict is not None
    assert (answer.verdict.score, answer.verdict.raw_score) == (9, 0.9)
    assert (answer.verdict.reason, answer.verdict.artifacts) == ("good", {"n": [1]})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('bad row')", "raised ValueError at rule_evaluator.py:2: bad row"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("import os; os._exit(0)", "exit code 0"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("return [0] * 2**33", "MemoryError"),
        ("return float('nan')", "not finite"),
        ("return True", "bool"),
        ("return '7'", "no number"),
        ("return None", "no number"),
        ("return evaluate(*_)", "RecursionError"),
        ("import time; time.sleep(60)", "was killed"),
        ("while True: pass", "was killed"),
    ],
)
async def test_a_bad_evaluator_costs_only_its_own_score(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path, body: str, says: str
) -> None:
    bad = rule(tmp_path, f"def evaluate(*_):\n    {body}\n")
    good = rule(tmp_path, "def evaluate(*_):\n    return 1", "good")
    judgement = await judge(scorer, make_case, bad, timeout_s=1.0 if says == "was killed" else 20.0)
    assert judgement.answer.verdict is None
    assert says in judgement.answer.error
    assert judgement.answer.error.startswith("env/rule_evaluator.py ")
    after = await judge(scorer, make_case, good)
    assert after.answer.verdict is not None and after.answer.verdict.score == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1", "exports none of"),
        ("def evaluate(:", "SyntaxError"),
        ("import no_such_module", "no_such_module"),
    ],
)
async def test_a_file_that_is_no_evaluator_is_told_from_one_that_is_not_there(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path, source: str, says: str
) -> None:
    assert says in (await judge(scorer, make_case, rule(tmp_path, source))).answer.error
    missing = await judge(scorer, make_case, tmp_path / "env2" / "rule_evaluator.py")
    assert missing.answer.error == f"no rule_evaluator.py in {tmp_path / 'env2'}"
    none = await scorer.score(make_case(""))
    assert none.answer.error == "no rule_evaluator.py in the folder of test"


async def test_what_an_evaluator_prints_does_not_spoil_the_answer(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path
) -> None:
    path = rule(
        tmp_path,
        """
        import os
        def evaluate(*_):
            print("x" * 1_000_000, flush=True)
            os.write(1, b"noise")
            return 3
        """,
    )
    verdict = (await judge(scorer, make_case, path)).answer.verdict
    assert verdict is not None and verdict.score == 3


async def test_the_time_counts_from_the_process_and_not_from_the_queue(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path
) -> None:
    path = rule(tmp_path, "import time\ndef evaluate(*_):\n    time.sleep(0.4)\n    return 3")
    judgements = await asyncio.gather(*(judge(scorer, make_case, path, timeout_s=1.0) for _ in range(5)))
    assert all(judgement.answer.verdict for judgement in judgements)
    assert all(0.4 <= judgement.wall_s < 1.0 for judgement in judgements)


async def test_an_edited_evaluator_is_loaded_anew(scorer: RuleScorer, make_case: MakeCase, tmp_path: Path) -> None:
    path = rule(tmp_path, "def evaluate(*_):\n    return 3")
    first = await judge(scorer, make_case, path)
    rule(tmp_path, "def evaluate(*_):\n    return 4.0")
    second = await judge(scorer, make_case, path)
    assert first.answer.verdict is not None and second.answer.verdict is not None
    assert (first.answer.verdict.score, second.answer.verdict.score) == (3, 4)
    assert first.scorer_version != second.scorer_version


async def test_two_environments_may_have_modules_of_one_name(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path
) -> None:
    for name, score in (("one", 1), ("two", 2)):
        path = rule(tmp_path, "from helping import score\ndef evaluate(*_):\n    return score", name)
        (path.parent / "helping.py").write_text(f"score = {score}")
        verdict = (await judge(scorer, make_case, path)).answer.verdict
        assert verdict is not None and verdict.score == score


async def test_evaluators_see_no_secret_of_the_factory(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTS_S3_SECRET_KEY", "of the factory")
    path = rule(
        tmp_path,
        "import os\ndef evaluate(*_):\n    return {'score': 1, 'artifacts': dict(os.environ)}",
    )
    verdict = (await judge(scorer, make_case, path)).answer.verdict
    assert verdict is not None and "OBJECTS_S3_SECRET_KEY" not in verdict.artifacts


async def test_a_process_is_replaced_after_its_share_of_sessions(make_case: MakeCase, tmp_path: Path) -> None:
    path = rule(tmp_path, "import os\ndef evaluate(*_):\n    return {'score': 1, 'artifacts': {'pid': os.getpid()}}")
    scorer = RuleScorer(ScoringPool(EvaluatorSettings(processes=1, sessions_a_process=2)))
    verdicts = [(await judge(scorer, make_case, path)).answer.verdict for _ in range(4)]
    await scorer.end()
    pids = [verdict.artifacts["pid"] for verdict in verdicts if verdict]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_an_orphan_of_an_evaluator_is_killed_with_it(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path
) -> None:
    path = rule(
        tmp_path,
        f"""
        import pathlib, subprocess, time
        def evaluate(*_):
            child = subprocess.Popen(["sleep", "60"])
            pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))
            time.sleep(60)
        """,
    )
    judgement = await judge(scorer, make_case, path, timeout_s=1.0)
    assert "was killed" in judgement.answer.error
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        if not psutil.pid_exists(pid):
            break
        await asyncio.sleep(0.05)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_one_process_scores_at_least_a_hundred_simple_sessions_a_second(
    scorer: RuleScorer, make_case: MakeCase, tmp_path: Path
) -> None:
    path = rule(tmp_path, "def evaluate(*_):\n    return 3")
    await judge(scorer, make_case, path)
    started_s = time.monotonic()
    judgements = await asyncio.gather(*(judge(scorer, make_case, path) for _ in range(200)))
    assert all(judgement.answer.verdict for judgement in judgements)
    assert 200 / (time.monotonic() - started_s) > 100
