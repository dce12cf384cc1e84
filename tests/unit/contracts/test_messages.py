"""Messages and payloads: addressed by content, small or by reference."""

from __future__ import annotations

import json

import pydantic
import pytest
from pydantic import JsonValue

from safactory.contracts.messages import Message, canonical_json
from safactory.contracts.payload import Payload
from safactory.testkit.builders import an_object_ref


@pytest.mark.parametrize(
    "spelling",
    [
        '{"role": "user", "content": "grüße"}',
        '{"content":"gr\\u00fc\\u00dfe","role":"user"}',
        '{\n  "content": "grüße",\n  "role": "user"\n}',
    ],
)
def test_one_message_has_one_digest_however_it_is_spelt(spelling: str) -> None:
    assert Message.of(json.loads(spelling)) == Message.of({"role": "user", "content": "grüße"})


@pytest.mark.parametrize(
    "other",
    [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "x "},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": "x", "name": None},
    ],
)
def test_another_message_has_another_digest(other: dict[str, JsonValue]) -> None:
    assert Message.of(other).sha256 != Message.of({"role": "user", "content": "x"}).sha256


def test_canonical_json_has_one_spelling() -> None:
    assert canonical_json({"b": [1, None], "a": "ß"}) == '{"a":"ß","b":[1,null]}'


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}],
            "a\nb",
        ),
        (None, ""),
        ([1, "x"], ""),
    ],
)
def test_the_text_of_a_message(content: JsonValue, text: str) -> None:
    assert Message.of({"role": "assistant", "content": content}).text == text


def test_a_payload_is_inline_or_a_reference() -> None:
    assert Payload(inline="").inline == ""
    assert Payload(ref=an_object_ref()).inline is None


@pytest.mark.parametrize("fields", [{}, {"inline": "x", "ref": an_object_ref()}])
def test_a_payload_that_is_neither_or_both_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError, match="exactly one"):
        Payload.model_validate(fields)
