"""OpenAI chat completions: what is read out of answers, whole and streamed, our engine's and foreign ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from safactory.contracts.ids import VersionSpan
from safactory.gateway.dialects.base import Answer, Body
from safactory.gateway.dialects.chat import STOP_ID, ChatDialect

CHAT = ChatDialect()


def delta(fields: dict[str, Any], finish: str | None = None, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish, **choice}]}


def tool(index: int | None, **fields: Any) -> dict[str, Any]:
    number = {} if index is None else {"index": index}
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return delta({"tool_calls": [{**number, **fields, "function": function}]})


def assembled(*events: dict[str, Any] | str) -> Answer:
    assembler = CHAT.assembler()
    for event in events:
        assembler.feed(event if isinstance(event, str) else json.dumps(event))
    return assembler.answer()


def calls(answer: Answer) -> list[tuple[Any, ...]]:
    assert answer.message is not None
    found: Any = answer.message["tool_calls"]
    return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in found]


def test_text_deltas_are_joined() -> None:
    answer = assembled(
        delta({"role": "assistant", "content": ""}), delta({"content": "he"}), delta({"content": "llo"}),
        delta({}, "stop"), "[DONE]",
    )  # fmt: skip
    assert answer.message == {"role": "assistant", "content": "hello"}
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "refusal"])
def test_reasoning_is_kept_beside_the_text(field: str) -> None:
    answer = assembled(delta({"role": "assistant", field: "let "}), delta({field: "me"}), delta({"content": "4"}))
    assert answer.message == {"role": "assistant", "content": "4", field: "let me"}


def test_tool_calls_are_joined_by_index_though_only_the_first_delta_has_an_id() -> None:
    answer = assembled(
        tool(0, id="a", type="function", name="look", arguments=""),
        tool(1, id="b", type="function", name="walk", arguments=""),
        tool(0, arguments='{"x"'), tool(1, arguments="{}"), tool(0, arguments=": 1}"),
        delta({}, "tool_calls"),
    )  # fmt: skip
    assert calls(answer) == [("a", "look", '{"x": 1}'), ("b", "walk", "{}")]
    assert answer.message is not None and answer.message["content"] is None


def test_a_server_that_gives_every_call_the_same_index_is_understood_by_its_ids() -> None:
    answer = assembled(
        tool(0, id="a", name="look", arguments="{}"), tool(0, id="b", name="walk", arguments='{"y"'),
        tool(0, id="b", arguments=": 2"), tool(0, arguments="}"),
    )  # fmt: skip
    assert calls(answer) == [("a", "look", "{}"), ("b", "walk", '{"y": 2}')]


def test_a_server_that_gives_no_index_is_understood_too() -> None:
    answer = assembled(
        tool(None, id="a", name="look", arguments="{"), tool(None, arguments="}"),
        tool(None, id="b", name="walk", arguments="{}"),
    )  # fmt: skip
    assert calls(answer) == [("a", "look", "{}"), ("b", "walk", "{}")]


def test_tool_calls_that_come_out_of_order_stand_by_index() -> None:
    answer = assembled(tool(1, id="b", name="walk", arguments=""), tool(0, id="a", name="look", arguments=""))
    assert [call[0] for call in calls(answer)] == ["a", "b"]


def test_of_several_choices_the_first_is_recorded() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "NO"}, "finish_reason": "length"}]}
    answer = assembled(delta({"content": "ye"}), other, delta({"content": "s"}), delta({}, "stop"), other)
    assert (answer.message, answer.finish_reason) == ({"role": "assistant", "content": "yes"}, "stop")
    whole = CHAT.read({
        "choices": [
            {"index": 1, "message": {"role": "assistant", "content": "NO"}},
            {"index": 0, "message": {"role": "assistant", "content": "yes"}},
        ]
    })
    assert whole.message == {"role": "assistant", "content": "yes"}


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter"])
def test_the_finish_reason_is_the_servers(reason: str) -> None:
    assert assembled(delta({"content": "x"}, reason)).finish_reason == reason
    whole: Body = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": reason}]}
    assert CHAT.read(whole).finish_reason == reason


def test_a_stream_that_broke_off_has_no_finish_reason_but_what_came() -> None:
    answer = assembled(delta({"content": "hal"}))
    assert (answer.finish_reason, answer.message) == ("", {"role": "assistant", "content": "hal"})


def test_a_stream_without_anything_has_no_message() -> None:
    assert assembled().message is None
    assert assembled(delta({}, "stop")).message is None


def test_usage_comes_in_a_chunk_of_its_own_or_in_the_last_or_in_all() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    for events in (
        [delta({"content": "x"}, "stop"), {"choices": [], "usage": usage}],
        [{**delta({"content": "x"}, "stop"), "usage": usage}],
        [{**delta({"content": "x"}), "usage": {"prompt_tokens": 5}}, {**delta({}, "stop"), "usage": usage}],
        [{**delta({"content": "x"}), "usage": None}, {"choices": [], "usage": usage}],
    ):
        answer = assembled(*events)
        assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (5, 2, 4)
        assert answer.message is not None and answer.message["content"] == "x"


def logprobs(*values: float | None) -> dict[str, Any]:
    return {"content": [{"token": "t", "logprob": value} for value in values]}


def test_tokens_and_versions_of_our_engine_are_joined_over_the_stream() -> None:
    span = {"version": "0.3", "start": 0, "end": 3}
    answer = assembled(
        {**delta({"content": "a"}, token_ids=[7], logprobs=logprobs(-0.1)), "prompt_token_ids": [1, 2]},
        delta({"content": "bc"}, token_ids=[8, 9], logprobs=logprobs(-0.2, None)),
        delta({}, "stop", weight_versions=[span]),
    )
    assert answer.tokens is not None
    assert (answer.tokens.prompt_token_ids, answer.tokens.completion_token_ids) == ([1, 2], [7, 8, 9])
    assert answer.tokens.logprobs == [-0.1, -0.2, None]
    assert answer.weight_versions == [VersionSpan(version="0.3", start=0, end=3)]


@pytest.mark.parametrize(
    "choice",
    [
        {"logprobs": logprobs(-0.1)},
        {"logprobs": logprobs(-0.1), "token_ids": [1, 2]},
        {"logprobs": {"content": None}, "token_ids": [1]},
        {"logprobs": {"tokens": ["x"], "token_logprobs": [-0.1]}, "token_ids": [1]},
        {"logprobs": {"content": ["x"]}, "token_ids": ["x"]},
        {"logprobs": None, "token_ids": None},
        {"token_ids": {"a": 1}, "weight_versions": "v3"},
    ],
)
def test_a_foreign_servers_fields_are_no_tokens_and_no_failure(choice: dict[str, Any]) -> None:
    body: Body = {
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop", **choice}],
        "prompt_token_ids": [1],
    }
    answer = CHAT.read(body)
    assert (answer.tokens, answer.weight_versions, answer.finish_reason) == (None, [], "stop")
    streamed = assembled({**delta({"content": "x"}, "stop", **choice), "prompt_token_ids": [1]})
    assert (streamed.tokens, streamed.weight_versions) == (None, [])


@pytest.mark.parametrize("data", ["not json", "[]", "null", '"x"', '{"choices": 3}', '{"choices": [3]}', "{}"])
def test_an_event_of_another_form_says_nothing(data: str) -> None:
    assert assembled(data, delta({"content": "x"}, "stop"), data).message == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}, {"choices": [{}]}, {"error": "x"}])
def test_an_answer_of_another_form_has_no_finish_reason(body: Body) -> None:
    answer = CHAT.read(body)
    assert (answer.message, answer.finish_reason, answer.tokens) == (None, "", None)


@pytest.mark.parametrize("messages", [None, [], "hi", {}, ["hi"], [{}], [{"role": 1}], [{"role": "user"}, None]])
def test_a_request_without_messages_is_refused(messages: Any) -> None:
    with pytest.raises(ValueError, match="messages:"):
        CHAT.messages({"messages": messages})


def test_a_request_goes_upstream_under_the_servers_name_for_the_model() -> None:
    body: Body = {"model": "default", "messages": [], "temperature": 0.5, "extra": {"kept": True}}
    assert CHAT.upstream_body(body, model="m", capture_tokens=False) == {**body, "model": "m"}
    captured = CHAT.upstream_body(body, model="m", capture_tokens=True)
    assert {name: captured[name] for name in captured.keys() - body.keys()} == {
        "return_token_ids": True, "logprobs": True, "return_weight_versions": True,
    }  # fmt: skip
    assert CHAT.parameters(body) == {"model": "default", "temperature": 0.5, "extra": {"kept": True}}


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}, {"other": 1}])
def test_a_streamed_request_always_asks_for_usage_and_the_client_sees_only_what_it_asked_for(options: Any) -> None:
    body: Body = {"messages": [], "stream": True, **({} if options is None else {"stream_options": options})}
    sent = CHAT.upstream_body(body, model="m", capture_tokens=False)
    assert sent["stream_options"] == {**(options or {}), "include_usage": True}
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 1}})
    assert CHAT.unasked(body, usage) is not bool((options or {}).get("include_usage"))
    for event in (json.dumps(delta({"content": '"usage"'})), '{"choices": [{}], "usage": {"x": 1}}', '"usage"', "x"):
        assert not CHAT.unasked(body, event)


def test_the_synthetic_stop_is_an_answer_that_the_official_client_reads() -> None:
    whole = ChatCompletion.model_validate_json(CHAT.stop("SAFACTORY_STOP", "default", stream=False))
    assert (whole.id, whole.choices[0].message.content, whole.choices[0].finish_reason) == (
        STOP_ID, "SAFACTORY_STOP", "stop",
    )  # fmt: skip
    streamed = CHAT.stop("SAFACTORY_STOP", "default", stream=True).decode().split("\n\n")
    assert streamed[-2:] == ["data: [DONE]", ""]
    chunks = [ChatCompletionChunk.model_validate_json(event.removeprefix("data: ")) for event in streamed[:-2]]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "SAFACTORY_STOP"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_key_is_sent_only_where_there_is_one() -> None:
    assert CHAT.headers("k") == {"Authorization": "Bearer k"}
    assert CHAT.headers("") == {}
