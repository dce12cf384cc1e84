from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models

from safactory.inference.text_stream import TextStream


def byte_tokenizer() -> Tokenizer:
    """Token i is byte i, so that any text can be cut at any byte."""
    tokenizer = Tokenizer(models.BPE(vocab={f"<0x{byte:02X}>": byte for byte in range(256)}, merges=[]))
    tokenizer.decoder = decoders.ByteFallback()
    return tokenizer


@pytest.mark.parametrize("text", ["plain", "käse 猫 🙂!", "🙂"])
def test_characters_are_never_cut_in_half(text: str) -> None:
    stream = TextStream(byte_tokenizer(), ())
    pieces = [stream.push(byte) for byte in text.encode()] + [stream.flush()]
    assert "".join(pieces) == text == stream.text
    assert "\ufffd" not in "".join(pieces)


def test_text_ends_before_the_first_stop_string_and_its_beginning_is_held_back() -> None:
    stream = TextStream(byte_tokenizer(), ("END", "never"))
    given = []
    for byte in b"the EN-ENDless":
        given.append(stream.push(byte))
        if stream.stopped:
            break
    assert "".join(given) == "the EN-" == stream.text
    assert stream.flush() == ""
    assert all("END"[:2] not in piece or piece == "EN-" for piece in given)


def test_what_only_looked_like_a_stop_string_is_given_out_at_the_end() -> None:
    stream = TextStream(byte_tokenizer(), ("END",))
    assert "".join(stream.push(byte) for byte in b"the EN") == "the "
    assert stream.flush() == "EN"
