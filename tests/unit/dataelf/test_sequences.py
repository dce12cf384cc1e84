"""Turns become token sequences, and no token is ever tokenised again."""

from __future__ import annotations

import math
import random

import pytest

from safactory.contracts.ids import VersionSpan
from safactory.contracts.rollouts import TokenSequence
from safactory.contracts.steps import StepTokens
from safactory.dataelf.sequences import Turn, sequences


def turn(
    prompt: list[int],
    sampled: list[int],
    *,
    logprobs: list[float | None] | None = None,
    temperature: float = 1.0,
    version: str = "0.0",
) -> Turn:
    values = [-0.5] * len(sampled) if logprobs is None else logprobs
    tokens = StepTokens(prompt_token_ids=prompt, completion_token_ids=sampled, logprobs=values)
    return Turn(tokens, temperature, [VersionSpan(version=version, start=0, end=len(sampled))])


def lists(sequence: TokenSequence) -> tuple[list[int], list[int], list[float]]:
    return sequence.token_ids, sequence.loss_mask, sequence.logprobs


def test_one_turn_is_one_sequence_whose_prompt_is_masked() -> None:
    (found,) = sequences([turn([1, 2, 3], [4, 5], logprobs=[-0.1, -0.2])])
    assert lists(found) == ([1, 2, 3, 4, 5], [0, 0, 0, 1, 1], [0.0, 0.0, 0.0, -0.1, -0.2])
    assert found.weight_versions == [VersionSpan(version="0.0", start=3, end=5)]


def test_a_turn_that_goes_on_is_joined_and_what_the_environment_said_is_masked() -> None:
    (found,) = sequences([turn([1, 2], [3]), turn([1, 2, 3, 8, 9], [4, 5], version="0.1")])
    assert lists(found)[:2] == ([1, 2, 3, 8, 9, 4, 5], [0, 0, 1, 0, 0, 1, 1])
    assert found.weight_versions == [
        VersionSpan(version="0.0", start=2, end=3), VersionSpan(version="0.1", start=5, end=7),
    ]  # fmt: skip


def test_a_turn_that_goes_on_without_a_word_between_is_joined() -> None:
    (found,) = sequences([turn([1], [2]), turn([1, 2], [3])])
    assert lists(found)[:2] == ([1, 2, 3], [0, 1, 1])


@pytest.mark.parametrize(
    "second",
    [[1, 2, 9, 8], [1, 2], [2, 3, 4], [], [1, 3, 3, 8]],
    ids=["another answer", "shorter", "shifted", "empty", "another prompt"],
)
def test_a_turn_that_does_not_go_on_begins_a_sequence_of_its_own(second: list[int]) -> None:
    found = sequences([turn([1, 2], [3]), turn(second, [7])])
    assert [sequence.token_ids for sequence in found] == [[1, 2, 3], [*second, 7]]
    assert found[1].loss_mask == [0] * len(second) + [1]


def test_after_a_branch_turns_join_the_newest_sequence() -> None:
    found = sequences([turn([1], [2]), turn([5], [6]), turn([5, 6, 7], [8]), turn([1, 2, 3], [4])])
    assert [sequence.token_ids for sequence in found] == [[1, 2], [5, 6, 7, 8], [1, 2, 3, 4]]


def test_a_turn_under_another_temperature_is_not_joined() -> None:
    found = sequences([turn([1], [2], temperature=1.0), turn([1, 2, 3], [4], temperature=0.7)])
    assert [(sequence.temperature, sequence.token_ids) for sequence in found] == [(1.0, [1, 2]), (0.7, [1, 2, 3, 4])]


@pytest.mark.parametrize("unknown", [None, math.nan, -math.inf, math.inf])
def test_a_token_of_unknown_probability_is_masked_and_never_given_weight_one(unknown: float | None) -> None:
    (found,) = sequences([turn([1], [2, 3], logprobs=[-0.1, unknown])])
    assert lists(found) == ([1, 2, 3], [0, 1, 0], [0.0, -0.1, 0.0])


def test_a_certain_token_is_trained_on() -> None:
    (found,) = sequences([turn([1], [2], logprobs=[0.0])])
    assert found.loss_mask == [0, 1]


def test_an_answer_of_no_tokens_leaves_only_its_prompt() -> None:
    (found,) = sequences([turn([1, 2], [])])
    assert lists(found) == ([1, 2], [0, 0], [0.0, 0.0])


def test_no_turns_make_no_sequences() -> None:
    assert sequences([]) == []


def test_any_conversation_keeps_its_tokens_in_place() -> None:
    dice = random.Random(0)
    for _ in range(200):
        turns: list[Turn] = []
        prompt = [dice.randrange(9)]
        for _ in range(dice.randrange(1, 6)):
            sampled = [dice.randrange(9) for _ in range(dice.randrange(4))]
            turns.append(turn(list(prompt), sampled, version=f"0.{len(turns)}"))
            prompt += sampled + [dice.randrange(9) for _ in range(dice.randrange(3))]
            if dice.random() < 0.2:
                prompt = [dice.randrange(9)]
        found = sequences(turns)
        assert sum(sum(sequence.loss_mask) for sequence in found) == sum(
            len(t.tokens.completion_token_ids) for t in turns
        )
        for sequence in found:
            assert len(sequence.token_ids) == len(sequence.loss_mask) == len(sequence.logprobs)
            spanned = [number for span in sequence.weight_versions for number in range(span.start, span.end)]
            assert spanned == [number for number, mask in enumerate(sequence.loss_mask) if mask]
