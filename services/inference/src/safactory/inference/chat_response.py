"""What `POST /v1/chat/completions` answers: one completion, or the chunks of a stream.

Built as plain JSON objects from the engine's typed updates: it is the last place they pass, and must be cheap.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from safactory.inference.chat_request import ChatRequest
from safactory.inference.generation import Generation, TokenInfo, Update
from safactory.inference.tokenizer import ChatTokenizer

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True)
class Answer:
    """One request's answer in the making."""

    request: ChatRequest
    generation: Generation
    tokenizer: ChatTokenizer
    completion_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, update: Update) -> bytes:
        """Return the body of an answer that is not streamed."""
        choice: JsonObject = {
            "index": 0,
            "message": {"role": "assistant", "content": update.text},
            "finish_reason": update.finish_reason,
        }
        body = self._envelope("chat.completion") | {"choices": [choice], "usage": self._usage()}
        self._add_extras(body, choice, update)
        return json.dumps(body, separators=(",", ":")).encode()

    def first_chunk(self) -> bytes:
        """Return the chunk that says who speaks; it carries the prompt's token ids when they were asked for."""
        body = self._chunk({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        if self.request.return_token_ids:
            body["prompt_token_ids"] = list(self.generation.request.prompt_ids)
        return _event(body)

    def chunk(self, update: Update) -> bytes:
        """Return the chunk of one update; the last one carries the weight versions when they were asked for."""
        choice: JsonObject = {"index": 0, "delta": {"content": update.text}, "finish_reason": update.finish_reason}
        self._add_token_extras(choice, update.tokens)
        if self.request.return_weight_versions and update.finish_reason is not None:
            choice["weight_versions"] = self._spans()
        return _event(self._chunk(choice))

    def usage_chunk(self) -> bytes:
        """Return the chunk that has usage and no choices."""
        return _event(self._envelope("chat.completion.chunk") | {"choices": [], "usage": self._usage()})

    def _envelope(self, kind: str) -> JsonObject:
        return {"id": self.completion_id, "object": kind, "created": self.created, "model": self.request.model}

    def _chunk(self, choice: JsonObject) -> JsonObject:
        body = self._envelope("chat.completion.chunk") | {"choices": [choice]}
        return body | {"usage": None} if self.request.include_usage else body

    def _usage(self) -> JsonObject:
        prompt, completion = len(self.generation.request.prompt_ids), len(self.generation.token_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            # Nothing is shared between requests, so that no key or value can outlive its weights.
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def _add_extras(self, body: JsonObject, choice: JsonObject, update: Update) -> None:
        self._add_token_extras(choice, update.tokens)
        if self.request.return_token_ids:
            body["prompt_token_ids"] = list(self.generation.request.prompt_ids)
        if self.request.return_weight_versions:
            choice["weight_versions"] = self._spans()

    def _add_token_extras(self, choice: JsonObject, tokens: Sequence[TokenInfo]) -> None:
        if self.request.return_token_ids:
            choice["token_ids"] = [info.token_id for info in tokens]
        if self.request.logprobs:
            choice["logprobs"] = {"content": [self._logprob(info) for info in tokens]}

    def _spans(self) -> JsonValue:
        return [{"version": span.version, "start": span.start, "end": span.end} for span in self.generation.spans]

    def _logprob(self, info: TokenInfo) -> JsonValue:
        top = [self._token(token_id, logprob) for token_id, logprob in info.top]
        return self._token(info.token_id, info.logprob) | {"top_logprobs": list(top)}

    def _token(self, token_id: int, logprob: float) -> JsonObject:
        text = self.tokenizer.token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


DONE = b"data: [DONE]\n\n"


def _event(body: JsonObject) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
