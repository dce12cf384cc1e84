"""Server-sent events, however the network cuts them."""

from __future__ import annotations

import pytest

from safactory.gateway.event_stream import Block, EventStream

EVENTS = [
    Block(b'data: {"a": "gr\xc3\xbc\xc3\x9fe \xf0\x9f\x98\x80"}\n\n', '{"a": "grüße 😀"}'),
    Block(b": ping\n\n", None),
    Block(b"data:no space\n\n", "no space"),
    Block(b"data:  two spaces\n\n", " two spaces"),
    Block(b"event: message\nid: 7\nretry: 10\ndata: {}\nunknown: field\n\n", "{}"),
    Block(b"data: first\ndata: second\n\n", "first\nsecond"),
    Block(b"data: one\r\ndata: two\r\n\r\n", "one\ntwo"),
    Block(b"\n", None),
    Block(b"data:\n\n", ""),
    Block(b"data: [DONE]\n\n", "[DONE]"),
]
WIRE = b"".join(event.raw for event in EVENTS)


def blocks(*chunks: bytes) -> list[Block]:
    stream = EventStream()
    return [block for chunk in chunks for block in stream.feed(chunk)]


def test_one_chunk_of_many_events() -> None:
    assert blocks(WIRE) == EVENTS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_chunks_of_any_size_give_the_same_events(size: int) -> None:
    assert blocks(*(WIRE[start : start + size] for start in range(0, len(WIRE), size))) == EVENTS


def test_a_cut_at_any_byte_changes_nothing() -> None:
    for cut in range(len(WIRE) + 1):
        assert blocks(WIRE[:cut], WIRE[cut:]) == EVENTS, cut


def test_no_byte_is_lost_or_changed_on_the_way() -> None:
    for cut in range(len(WIRE)):
        stream = EventStream()
        assert b"".join(block.raw for block in stream.feed(WIRE[:cut])) + stream.rest == WIRE[:cut]


def test_an_event_without_its_blank_line_is_not_whole() -> None:
    stream = EventStream()
    assert stream.feed(b"data: {}\n") == []
    assert stream.rest == b"data: {}\n"


def test_only_the_sentinel_is_done() -> None:
    assert [block.is_done for block in EVENTS] == [False] * 9 + [True]


def test_bytes_that_are_no_text_do_not_stop_the_stream() -> None:
    (block,) = blocks(b"data: \xff\n\n")
    assert (block.raw, block.data) == (b"data: \xff\n\n", "�")
