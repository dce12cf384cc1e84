"""OpenAI chat completions, whole and streamed, with the token fields of vLLM and of our own engine."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import ClassVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from safactory.contracts.ids import VersionSpan
from safactory.contracts.steps import StepTokens
from safactory.gateway.dialects.base import Answer, Body

STOP_ID = "safactory-stop-session"

_SPANS = TypeAdapter(list[VersionSpan])


class ChatDialect:
    """`POST …/chat/completions`."""

    endpoint: ClassVar[str] = "chat.completions"
    path: ClassVar[str] = "/chat/completions"

    def messages(self, body: Body) -> list[Body]:
        """Return the request's messages."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ValueError("messages: expected a list of at least one message")
        found = [message for message in messages if isinstance(message, dict) and isinstance(message.get("role"), str)]
        if len(found) != len(messages):
            raise ValueError("messages: each must be an object with a role")
        return found

    def parameters(self, body: Body) -> Body:
        """Return the request without its messages."""
        return {name: value for name, value in body.items() if name != "messages"}

    def upstream_body(self, body: Body, *, model: str, capture_tokens: bool) -> Body:
        """Return what is sent upstream."""
        sent = {**body, "model": model}
        if capture_tokens:
            sent |= {"return_token_ids": True, "logprobs": True, "return_weight_versions": True}
        if body.get("stream") is True:
            # Without this a streamed answer does not count its tokens; `unasked` takes it out again.
            sent["stream_options"] = {**_object(body.get("stream_options")), "include_usage": True}
        return sent

    def unasked(self, body: Body, data: str) -> bool:
        """Tell whether an event is the usage that only the gateway asked for: clients trip over its empty choices."""
        asked = _object(body.get("stream_options")).get("include_usage") is True
        if asked or '"usage"' not in data:
            return False
        try:
            event = json.loads(data)
        except ValueError:
            return False
        return isinstance(event, dict) and event.get("choices") == [] and bool(event.get("usage"))

    def read(self, body: Body) -> Answer:
        """Read a whole answer."""
        choice = _choice(body)
        answer = Answer(
            message=_object(choice.get("message")) or None, finish_reason=_string(choice.get("finish_reason"))
        )
        _read_usage(answer, body)
        _read_tokens(answer, body.get("prompt_token_ids"), choice.get("token_ids"), _logprobs(choice))
        answer.weight_versions = _spans(choice.get("weight_versions"))
        return answer

    def assembler(self) -> ChatAssembler:
        """Return a reader for a streamed answer."""
        return ChatAssembler()

    def stop(self, text: str, model: str, *, stream: bool) -> bytes:
        """Return a synthetic answer with finish reason `stop` and no usage."""
        usage: Body = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        head: Body = {"id": STOP_ID, "created": int(time.time()), "model": model}
        message: Body = {"role": "assistant", "content": text}
        if not stream:
            choice: Body = {"index": 0, "message": message, "finish_reason": "stop"}
            return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        chunks: list[Body] = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        events = [{**head, "object": "chat.completion.chunk", "choices": [chunk]} for chunk in chunks]
        return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"

    def headers(self, api_key: str) -> Mapping[str, str]:
        """Return the upstream's authentication."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}


class ChatAssembler:
    """Joins the deltas of choice 0: text, reasoning, tool calls by index, tokens, usage."""

    def __init__(self) -> None:
        self._answer = Answer()
        self._message: Body = {}
        self._tools: list[tuple[int, Body]] = []
        """Calls with their index, in the order of their coming."""
        self._prompt_ids: JsonValue = None
        self._ids: list[JsonValue] = []
        self._logprobs: list[JsonValue] = []

    def feed(self, data: str) -> None:
        """Take the data of one server-sent event; what is not a JSON object says nothing."""
        if data == "[DONE]":
            return
        try:
            event = json.loads(data)
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        _read_usage(self._answer, event)
        self._prompt_ids = event.get("prompt_token_ids") or self._prompt_ids
        choice = _choice(event)
        self._delta(_object(choice.get("delta")))
        self._answer.finish_reason = _string(choice.get("finish_reason")) or self._answer.finish_reason
        self._ids += _list(choice.get("token_ids"))
        self._logprobs += _logprobs(choice)
        self._answer.weight_versions = _spans(choice.get("weight_versions")) or self._answer.weight_versions

    def answer(self) -> Answer:
        """Return what has come so far."""
        if self._message or self._tools:
            tools: list[JsonValue] = [call for _, call in sorted(self._tools, key=lambda numbered: numbered[0])]
            self._answer.message = {
                "role": "assistant", "content": None, **self._message, **({"tool_calls": tools} if tools else {})
            }  # fmt: skip
        _read_tokens(self._answer, self._prompt_ids, self._ids or None, self._logprobs)
        return self._answer

    def _delta(self, delta: Body) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for call in _list(value):
                    self._tool(_object(call))
            elif isinstance(value, str):
                before = self._message.get(name)
                joined = name != "role" and isinstance(before, str)
                self._message[name] = f"{before}{value}" if joined else value

    def _tool(self, delta: Body) -> None:
        call = self._call_of(delta)
        if delta.get("id"):
            call["id"] = delta["id"]
        function = _object(call.get("function"))
        for name, value in _object(delta.get("function")).items():
            before = function.get(name)
            function[name] = f"{before}{value}" if isinstance(before, str) and isinstance(value, str) else value
        call["function"] = function

    def _call_of(self, delta: Body) -> Body:
        """Return the call that a delta goes on with; another id begins another call, whatever its index says."""
        index, name = delta.get("index"), delta.get("id")
        if not isinstance(index, int):
            index = self._tools[-1][0] if self._tools and not name else len(self._tools)
        begun = [call for other, call in self._tools if other == index]
        if begun and (not name or begun[-1].get("id", name) == name):
            return begun[-1]
        self._tools.append((index, {"type": "function"}))
        return self._tools[-1][1]


def _read_usage(answer: Answer, body: Body) -> None:
    usage = _object(body.get("usage"))
    if not usage:
        return
    answer.prompt_tokens = _integer(usage.get("prompt_tokens"))
    answer.completion_tokens = _integer(usage.get("completion_tokens"))
    answer.cached_tokens = _integer(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))


def _read_tokens(answer: Answer, prompt_ids: JsonValue, ids: JsonValue, logprobs: list[JsonValue]) -> None:
    if prompt_ids is None or ids is None or len(logprobs) != len(_list(ids)):
        return
    try:
        answer.tokens = StepTokens.model_validate({
            "prompt_token_ids": prompt_ids,
            "completion_token_ids": ids,
            "logprobs": logprobs,
        })
    except ValidationError:
        answer.tokens = None  # a foreign server's fields of the same names: recorded as text alone


def _logprobs(choice: Body) -> list[JsonValue]:
    content = _list(_object(choice.get("logprobs")).get("content"))
    return [_object(entry).get("logprob") for entry in content]


def _spans(value: JsonValue) -> list[VersionSpan]:
    try:
        return _SPANS.validate_python(value or [])
    except ValidationError:
        return []


def _choice(body: Body) -> Body:
    """Return choice 0: of several that were asked for (`n`), the first is the one that is recorded."""
    choices = [_object(choice) for choice in _list(body.get("choices"))]
    return next((choice for choice in choices if choice.get("index", 0) == 0), {})


def _object(value: JsonValue) -> Body:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
