"""`Call`: one admitted model call, from its request to the step event that records it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from safactory.contracts.messages import Message
from safactory.contracts.steps import StepRecorded, StepStatus
from safactory.gateway.dialects.base import Answer, Body, Dialect
from safactory.gateway.session_book import SessionState
from safactory.gateway.settings import Route, Upstream
from safactory.infra.objects import Objects
from safactory.infra.payloads import pack
from safactory.infra.session_tokens import SessionClaims


@dataclass(slots=True)
class Call:
    """What is known of a call so far."""

    claims: SessionClaims
    state: SessionState
    seq: int
    dialect: Dialect
    body: Body
    """As the client sent it."""
    messages: list[Body]
    route: Route
    upstream: Upstream
    status: StepStatus = StepStatus.CLIENT_ABORT
    """Until the answer is whole, the agent may still hang up."""
    http_status: int = 499
    error: str = "the client hung up before the answer was whole"
    answer: Answer = field(default_factory=Answer)
    started_s: float = field(default_factory=time.monotonic)
    upstream_s: float = 0.0
    ttft_s: float | None = None
    begun: bool = False
    """Whether the response's head has gone out."""
    recording: asyncio.Task[None] | None = None

    @property
    def stream(self) -> bool:
        """Whether the client asked for a stream."""
        return self.body.get("stream") is True

    def first_byte(self) -> None:
        """Note the moment of the answer's first byte."""
        if self.ttft_s is None:
            self.ttft_s = time.monotonic() - self.started_s

    def completed(self, answer: Answer) -> None:
        """The answer is whole."""
        self.answer = answer
        self.status, self.http_status, self.error = StepStatus.OK, 200, ""

    def failed(self, status: StepStatus, http_status: int, error: str) -> None:
        """The call failed; the error is for a person and says the way out."""
        self.status, self.http_status, self.error = status, http_status, error

    async def step(self, objects: Objects) -> StepRecorded:
        """Return the event; large payloads are in the object store when this returns.

        Raises:
            ObjectError: the store refused or did not answer.
        """
        prompt = [Message.of(message) for message in self.messages]
        output = Message.of(self.answer.message) if self.answer.message else None
        unsent = {
            m.sha256: m for m in (*prompt, *([output] if output else [])) if m.sha256 not in self.state.sent_messages
        }
        tokens = self.answer.tokens
        event = StepRecorded(
            session_id=self.claims.session_id,
            attempt=self.claims.attempt,
            seq=self.seq,
            job_id=self.claims.job_id,
            group_id=self.claims.group_id,
            environment=self.claims.environment,
            status=self.status,
            http_status=self.http_status,
            error=self.error,
            endpoint=self.dialect.endpoint,
            route=self.claims.route,
            model=self.route.model,
            upstream=self.upstream.base_url,
            stream=self.stream,
            input_hashes=[message.sha256 for message in prompt],
            output_hash=output.sha256 if output else "",
            messages=await pack(objects, f"[{','.join(message.model_dump_json() for message in unsent.values())}]"),
            parameters=await pack(objects, json.dumps(self.dialect.parameters(self.body))),
            tokens=await pack(objects, tokens.model_dump_json()) if tokens else None,
            weight_versions=self.answer.weight_versions,
            temperature=_temperature(self.body),
            finish_reason=self.answer.finish_reason,
            prompt_tokens=self.answer.prompt_tokens,
            completion_tokens=self.answer.completion_tokens,
            cached_tokens=self.answer.cached_tokens,
            ttft_s=self.ttft_s,
            total_s=time.monotonic() - self.started_s,
            upstream_s=self.upstream_s,
        )
        self.state.sent_messages.update(unsent)
        return event


def _temperature(body: Body) -> float:
    value = body.get("temperature")
    return float(value) if isinstance(value, int | float) else 1.0
