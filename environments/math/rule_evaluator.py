r"""The math evaluator: compares the answer in the last `\boxed{}` with the row's own.

A row of reasoning-gym (its `metadata` names the task) is scored by that task's own rule. Any other row is compared as
mathematics, by math-verify; so is a reasoning-gym row whose answer is a plain number, where only the value counts.
math-verify sets alarms, which needs the main thread: the scoring processes run evaluators there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import math_verify
import reasoning_gym
from pydantic import JsonValue

from safactory.evaluator.evaluation import EvaluatedTrajectory, EvaluationRequest, EvaluationSpec

SCORE_MAX = 10.0
_NUMBER = re.compile(r"-?\d+(\.\d+)?")

ScoreAnswer = Callable[[str, dict[str, JsonValue]], float]


def evaluate(
    request: EvaluationRequest, _spec: EvaluationSpec, trajectory: EvaluatedTrajectory
) -> dict[str, JsonValue]:
    """Score one answer."""
    row = request.dataset
    expected = str(row["answer"])
    answer = boxed(trajectory.final_response)
    if answer is None:
        return {"score": 0.0, "reason": "the answer has no \\boxed{}"}
    score = SCORE_MAX * _fraction(answer, expected, row)
    return {"score": score, "reason": f"answered {answer[:200]!r}", "artifacts": {"answer": answer[:2000]}}


def boxed(text: str) -> str | None:
    r"""Return what is in the last whole `\boxed{}` after any thinking, braces balanced; None when there is none."""
    spoken = text.rpartition("</think>")[2]
    start = spoken.rfind("\\boxed{")
    while start >= 0:
        depth = 0
        for place in range(start + len("\\boxed"), len(spoken)):
            depth += {"{": 1, "}": -1}.get(spoken[place], 0)
            if depth == 0:
                return spoken[start + len("\\boxed{") : place].strip()
        start = spoken.rfind("\\boxed{", 0, start)
    return None


def _fraction(answer: str, expected: str, row: dict[str, JsonValue]) -> float:
    metadata = row.get("metadata")
    task = metadata.get("source_dataset") if isinstance(metadata, dict) else None
    if not isinstance(task, str):
        return float(same_mathematics(answer, expected))
    entry: dict[str, JsonValue] = {"question": row["problem"], "answer": expected, "metadata": metadata}
    score = max(_by_rule(task, text, entry) for text in {answer, _plain(answer)})
    if score < 1.0 and _NUMBER.fullmatch(expected) and same_mathematics(answer, expected):
        return 1.0
    return score


def _by_rule(task: str, answer: str, entry: dict[str, JsonValue]) -> float:
    try:
        return float(_rule_of(task)(answer, entry))
    except (ValueError, TypeError, ArithmeticError, LookupError, SyntaxError, AttributeError):
        return 0.0  # the tasks' rules raise on an answer that is not of their form


def same_mathematics(answer: str, expected: str) -> bool:
    """Whether two answers in LaTeX or plain notation mean the same."""
    gold = math_verify.parse(f"\\boxed{{{expected}}}")
    return bool(math_verify.verify(gold, math_verify.parse(f"\\boxed{{{answer}}}")))


@functools.cache
def _rule_of(task: str) -> ScoreAnswer:
    rule: ScoreAnswer = reasoning_gym.get_score_answer_fn(task)
    return rule


def _plain(answer: str) -> str:
    r"""Undo the LaTeX that models put around an answer that is no mathematics: \text{Friday} is Friday."""
    wrapped = re.fullmatch(r"\\(?:text|mathrm|texttt|textbf)\{(.*)\}", answer, flags=re.DOTALL)
    plain = wrapped.group(1) if wrapped else answer
    plain = re.sub(r"\\d?frac\{([^{}]+)\}\{([^{}]+)\}", r"\1/\2", plain)
    return plain.replace("\\_", "_").replace("\\,", "").replace("\\ ", " ").strip().strip("$").strip()
