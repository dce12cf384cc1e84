"""Turns → token sequences. Pure; no token is ever tokenised again.

A turn whose prompt begins with the whole sequence so far continues it: what lies between is the environment's and is
masked. Any other turn starts a sequence of its own, as when an agent condenses its history.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from safactory.contracts.ids import VersionSpan
from safactory.contracts.rollouts import TokenSequence
from safactory.contracts.steps import StepTokens


class Turn(NamedTuple):
    """One answered call."""

    tokens: StepTokens
    temperature: float
    weight_versions: list[VersionSpan]
    """Spans over the completion."""


def sequences(turns: list[Turn]) -> list[TokenSequence]:
    """Join a session's turns, in order of their seq."""
    found: list[TokenSequence] = []
    for turn in turns:
        last = found[-1] if found else None
        if last is not None and _continues(last, turn):
            found[-1] = _join(last, turn)
        else:
            empty = TokenSequence(token_ids=[], loss_mask=[], logprobs=[], temperature=turn.temperature)
            found.append(_join(empty, turn))
    return found


def _continues(sequence: TokenSequence, turn: Turn) -> bool:
    length = len(sequence.token_ids)
    same_sampling = sequence.temperature == turn.temperature
    return same_sampling and turn.tokens.prompt_token_ids[:length] == sequence.token_ids


def _join(sequence: TokenSequence, turn: Turn) -> TokenSequence:
    between = turn.tokens.prompt_token_ids[len(sequence.token_ids) :]
    sampled = turn.tokens.completion_token_ids
    # A token whose probability is unknown cannot be weighed: it is masked, never given weight 1.
    known = [logprob is not None and math.isfinite(logprob) for logprob in turn.tokens.logprobs]
    logprobs = [
        value if value is not None and ok else 0.0 for value, ok in zip(turn.tokens.logprobs, known, strict=True)
    ]
    start = len(sequence.token_ids) + len(between)
    spans = [
        VersionSpan(version=span.version, start=start + span.start, end=start + span.end)
        for span in turn.weight_versions
    ]
    return TokenSequence(
        token_ids=[*sequence.token_ids, *between, *sampled],
        loss_mask=[*sequence.loss_mask, *[0] * len(between), *(int(ok) for ok in known)],
        logprobs=[*sequence.logprobs, *[0.0] * len(between), *logprobs],
        temperature=sequence.temperature,
        weight_versions=[*sequence.weight_versions, *spans],
    )
