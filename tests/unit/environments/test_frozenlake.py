"""FrozenLake: its runner against a model server, its evaluator against gymnasium, and its datasets."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from safactory.contracts.steps import StepStatus

Environment = Any
Model = Any

LAKE = ["SFF", "FHF", "FFG"]


def walk(*words: str) -> Any:
    """Answer with these words in turn."""
    left = iter(words)
    return lambda _: next(left)


def test_a_good_walk_reaches_the_goal_one_token_a_move(frozenlake: Environment, model: Model) -> None:
    model.reply = walk("down", "down", "right", "right")
    result = frozenlake.run(model, {"map": LAKE}, temperature=0.7)
    assert (result.status, result.step_count, result.metrics["outcome"]) == ("succeeded", 4, "goal")
    assert result.metrics["places"] == [[0, 0], [1, 0], [2, 0], [2, 1], [2, 2]]
    assert {request["max_tokens"] for request in model.requests} == {1}
    assert {request["temperature"] for request in model.requests} == {0.7}
    assert {request["model"] for request in model.requests} == {"default"}
    assert set(model.paths) == {"/v1/sessions/s1/chat/completions"}
    assert set(model.keys) == {"Bearer signed"}
    prompts = [request["messages"] for request in model.requests]
    assert prompts[0] == [{"role": "user", "content": "row P F F row F H F row F F G up W down F left W right F"}]
    assert prompts[1][0]["content"] == "row S F F row P H F row F F G up S down F left W right H"


@pytest.mark.parametrize(
    ("words", "outcome", "moves"),
    [
        (["right", "down"], "hole", 2),
        (["up", "left", "", "jump", "up", "left"], "out_of_moves", 6),
    ],
)
def test_a_game_can_be_lost(frozenlake: Environment, model: Model, words: list[str], outcome: str, moves: int) -> None:
    model.reply = walk(*words)
    result = frozenlake.run(model, {"map": LAKE})
    assert (result.status, result.metrics["outcome"], result.step_count) == ("failed", outcome, moves)


def test_the_gateways_stop_truncates(frozenlake: Environment, model: Model) -> None:
    model.reply = walk("right", "SAFACTORY_STOP: max_steps_reached. Session s1 has reached max_steps=1")
    result = frozenlake.run(model, {"map": LAKE})
    assert (result.status, result.truncated, result.step_count) == ("truncated", True, 1)


def test_a_model_that_is_away_is_a_failure_with_its_reason(frozenlake: Environment, model: Model) -> None:
    model.http_status = 400
    result = frozenlake.run(model, {"map": LAKE})
    assert result.status == "failed"
    assert "the model is away" in result.error_text


@pytest.mark.parametrize(
    ("answers", "score"),
    [
        (["down", "down", "right", "right"], 10.0),
        (["right", "down", "right", "right"], 1.0),
        (["up"] * 6, 1.0),
        (["jump", "right", "", "down"], 0.5),
        (["jump"] * 6, 0.0),
        (["down", "down", "right", "", "", ""], 2.75),
        (["down", "down", "up", "up", "up", "up"], 2.5),
        ([" right\n", "right", "down", "down"], 10.0),
        (["up"] * 6 + ["down", "down", "right", "right"], 1.0),
        (["down", "down", "right", "SAFACTORY_STOP: max_steps_reached", "right"], 10.0),
        ([], 0.0),
    ],
)
def test_the_record_is_scored_and_not_the_runners_word(
    frozenlake: Environment, answers: list[str], score: float
) -> None:
    assert frozenlake.score({"map": LAKE}, *answers).score == pytest.approx(score)


def test_a_call_that_failed_is_no_move(frozenlake: Environment) -> None:
    walked = frozenlake.score({"map": LAKE}, "down", "down", "right", "right", status=StepStatus.UPSTREAM_TRUNCATED)
    assert walked.score == 0.0


def test_the_replay_agrees_with_gymnasium_on_every_walk(frozenlake: Environment) -> None:
    evaluator = frozenlake.module("rule_evaluator")
    runner = frozenlake.module("runner")
    for row in frozenlake.rows("smoke.jsonl"):
        lake = row["map"]
        env = gymnasium.make("FrozenLake-v1", desc=lake, is_slippery=False)
        for words in itertools.product(runner.MOVES, repeat=4):
            assert evaluator.replay(lake, words) == played(env, [runner.MOVES.index(word) for word in words])
        env.close()


def played(env: Any, actions: list[int]) -> list[tuple[int, int]]:
    """Return where gymnasium's player stood."""
    state, _ = env.reset()
    places = [divmod(int(state), 3)]
    for action in actions:
        state, _, ended, _, _ = env.step(action)
        places.append(divmod(int(state), 3))
        if ended:
            break
    return places


def test_the_sets_are_distinct_solvable_and_disjoint(frozenlake: Environment) -> None:
    evaluator = frozenlake.module("rule_evaluator")
    train, held_out = ([tuple(row["map"]) for row in frozenlake.rows(f"{name}.jsonl")] for name in ("train", "heldout"))
    assert (len(train), len(held_out)) == (39, 11)
    assert len({*train, *held_out}) == 50
    assert all(evaluator.moves_to_goal(lake, (0, 0)) >= 4 for lake in (*train, *held_out))


def test_the_generator_repeats_itself_and_refuses_more_than_there_is(frozenlake: Environment, tmp_path: Path) -> None:
    command = [sys.executable, str(frozenlake.folder / "generate.py"), str(tmp_path / "out.jsonl"), "--count"]
    held_out = frozenlake.folder / "datasets" / "heldout.jsonl"
    subprocess.run([*command, "39", "--exclude", str(held_out)], check=True, capture_output=True)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == frozenlake.rows("train.jsonl")
    refused = subprocess.run([*command, "51"], check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "only 50 layouts are left" in refused.stderr
