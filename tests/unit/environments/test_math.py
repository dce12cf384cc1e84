"""Math: the runner against a model server, and the evaluator on right, wrong and odd answers."""

from __future__ import annotations

from typing import Any

import pytest

Environment = Any
Model = Any


def test_a_problem_is_asked_once_and_its_answer_is_left_to_the_evaluator(math: Environment, model: Model) -> None:
    model.reply = lambda _: "It is \\boxed{4}."
    result = math.run(model, {"problem": "2 + 2"}, temperature=0.5)
    assert (result.status, result.step_count, result.total_reward) == ("succeeded", 1, None)
    [request] = model.requests
    assert request["messages"] == [
        {
            "role": "user",
            "content": "2 + 2\n\nThink step by step, and put your final answer within \\boxed{}.",
        }
    ]
    assert "max_tokens" not in request and request["temperature"] == 0.5


def test_the_environments_parameters_shape_the_call(math: Environment, model: Model) -> None:
    params = {"system_prompt": "Be brief.", "instruction": "Box it.", "max_tokens": 64}
    math.run(model, {"problem": "2 + 2"}, env_params=params)
    [request] = model.requests
    assert [message["content"] for message in request["messages"]] == ["Be brief.", "2 + 2\n\nBox it."]
    assert request["max_tokens"] == 64


@pytest.mark.parametrize(
    ("reply", "finish_reason"), [("SAFACTORY_STOP: max_steps_reached.", "stop"), ("Let me think", "length")]
)
def test_an_answer_that_is_cut_off_is_truncated(
    math: Environment, model: Model, reply: str, finish_reason: str
) -> None:
    model.reply = lambda _: reply
    model.finish_reason = finish_reason
    result = math.run(model, {"problem": "2 + 2"})
    assert (result.status, result.metrics["finish_reason"]) == ("truncated", finish_reason)


def test_a_model_that_is_away_is_a_failure_with_its_reason(math: Environment, model: Model) -> None:
    model.http_status = 404
    assert "the model is away" in math.run(model, {"problem": "2 + 2"}).error_text


@pytest.mark.parametrize(
    ("expected", "says", "score"),
    [
        ("4", "so \\boxed{4}", 10),
        ("4", "so \\boxed{5}", 0),
        ("4", "so 4", 0),
        ("4", "", 0),
        ("4", "first \\boxed{5}, no: \\boxed{4}", 10),
        ("4", "\\boxed{4} or rather \\boxed{5}", 0),
        ("4", "<think>\\boxed{4}</think> I do not know", 0),
        ("4", "an unfinished \\boxed{4", 0),
        ("\\frac{1}{2}", "\\boxed{0.5}", 10),
        ("\\frac{1}{2}", "\\boxed{\\dfrac{2}{4}}", 10),
        ("\\frac{\\sqrt{3}}{2}", "\\boxed{\\frac{\\sqrt{3}}{2}}", 10),
        ("x^2+2x+1", "\\boxed{(x+1)^2}", 10),
        ("(3, \\frac{\\pi}{2})", "\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}", 10),
        ("(3, \\frac{\\pi}{2})", "\\boxed{(\\frac{\\pi}{2}, 3)}", 0),
    ],
)
def test_a_plain_row_is_compared_as_mathematics(math: Environment, expected: str, says: str, score: float) -> None:
    row = {"problem": "?", "answer": expected, "subject": "Algebra", "level": 2}
    assert math.score(row, says).score == score


def test_every_answer_of_the_dataset_is_right_and_nonsense_is_wrong(math: Environment) -> None:
    for row in math.rows("reasoning_gym.jsonl"):
        task = row["metadata"]["source_dataset"]
        assert math.score(row, f"\\boxed{{{row['answer']}}}").score == 10, task
        assert math.score(row, "\\boxed{nonsense}").score < 3, task


@pytest.mark.parametrize(
    ("task", "says", "passes"),
    [
        ("calendar_arithmetic", "\\boxed{\\text{%s}}", True),
        ("gcd", "\\boxed{%s.0}", True),
        ("countdown", "\\boxed{%s + 1}", False),
    ],
)
def test_latex_around_an_answer_does_no_harm(math: Environment, task: str, says: str, passes: bool) -> None:
    row = next(row for row in math.rows("reasoning_gym.jsonl") if row["metadata"]["source_dataset"] == task)
    assert (math.score(row, says.replace("%s", row["answer"])).score == 10) is passes


def test_a_fraction_that_is_not_simplified_does_not_pass(math: Environment) -> None:
    rows = math.rows("reasoning_gym.jsonl")
    row = next(row for row in rows if row["metadata"]["source_dataset"] == "fraction_simplification")
    numbers = row["metadata"]
    unsimplified = f"\\boxed{{\\frac{{{numbers['numerator']}}}{{{numbers['denominator']}}}}}"
    simplified = f"\\boxed{{\\frac{{{row['answer'].replace('/', '}{')}}}}}"
    assert math.score(row, unsimplified).score < 10
    assert math.score(row, simplified).score == 10
