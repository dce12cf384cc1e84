"""`/v1/sessions/{id}/…`: one session's model calls, its state and its end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, JsonValue

from safactory.contracts.ids import new_session_id
from safactory.contracts.rpc.v1 import sessions_pb2
from safactory.gateway.admission import REJECTED
from safactory.gateway.call import Call
from safactory.gateway.dialects.base import Body, Dialect
from safactory.gateway.dialects.chat import ChatDialect
from safactory.gateway.errors import Refusal
from safactory.gateway.gate import Gate
from safactory.gateway.relay import RelayResponse
from safactory.gateway.session_book import SessionState
from safactory.infra.health import counter
from safactory.infra.session_tokens import SessionClaims

STOPS = counter("gateway_synthetic_stop", "Answers that told an agent to stop", "reason")

Text = Annotated[str, Header()]


class CloseRequest(BaseModel):
    """The body of `/close`."""

    reason: str = "closed by the agent"
    completion_mode: str = "complete"


def session_routes(gate: Gate) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    root = gate.settings.base_session_path
    chat = ChatDialect()

    @router.post(root + "/{session_id}/chat/completions")
    async def session_chat(
        request: Request, session_id: str, authorization: Text = "", x_api_key: Text = ""
    ) -> Response:
        try:
            claims = gate.admission.claims(session_id, authorization, x_api_key)
            return await _relay(gate, chat, claims, await _body(request, gate.settings.body_bytes_max))
        except Refusal as refusal:
            REJECTED.labels(refusal.kind).inc()
            return refusal.response()

    @router.post("/v1/chat/completions")
    async def sessionless_chat(request: Request, authorization: Text = "") -> Response:
        try:
            if not gate.settings.allow_sessionless:
                raise Refusal(
                    403, "session_required", f"call {root}/{{session_id}}/chat/completions with a session token"
                )
            body = await _body(request, gate.settings.body_bytes_max)
            claims = SessionClaims(
                session_id=new_session_id(), attempt=1, job_id="", group_id="", environment="", route=_route_of(body)
            )
            return await _relay(gate, chat, claims, body)
        except Refusal as refusal:
            REJECTED.labels(refusal.kind).inc()
            return refusal.response()

    @router.get(root + "/{session_id}")
    async def status(session_id: str) -> JSONResponse:
        state = gate.book.find(session_id)
        if state is None:
            return Refusal(404, "not_found", f"session {session_id} has made no call here").response()
        return JSONResponse(_status(session_id, state))

    router.post(root + "/{session_id}/close")(_closer(gate))
    return router


def _closer(gate: Gate) -> Callable[..., Awaitable[JSONResponse]]:
    async def close(
        session_id: str, body: CloseRequest, authorization: Text = "", x_api_key: Text = ""
    ) -> JSONResponse:
        try:
            claims = gate.admission.claims(session_id, authorization, x_api_key)
            if body.completion_mode not in ("complete", "seal", "abort"):
                raise Refusal(400, "bad_request", "completion_mode: expected complete, seal or abort")
        except Refusal as refusal:
            return refusal.response()
        sealed = await gate.sealing.seal(
            sessions_pb2.SealRequest(
                session_id=session_id,
                job_id=claims.job_id,
                group_id=claims.group_id,
                attempt=claims.attempt,
                environment=claims.environment,
                reason=body.reason,
                drain_timeout_s=0.1 if body.completion_mode == "abort" else 30.0,
            )
        )
        return JSONResponse({
            "session_id": session_id,
            "status": "closed",
            "drained": True,
            "telemetry_status": "flushed",
            "completion_mode": body.completion_mode,
            "last_seq": sealed.last_seq,
        })

    return close


async def _relay(gate: Gate, dialect: Dialect, claims: SessionClaims, body: Body) -> Response:
    if body.get("model") != claims.route:
        raise Refusal(404, "model_not_found", f"this session may call {claims.route!r}, not {body.get('model')!r}")
    try:
        messages = dialect.messages(body)
    except ValueError as error:
        raise Refusal(400, "bad_request", str(error)) from error
    state = gate.book.open(claims)
    route = gate.routes.find(claims.route)
    if not (state.closed and not state.stop_sent) and state.budget_spent:
        return _stop(dialect, claims, state, stream=body.get("stream") is True)
    upstream = gate.routes.upstream_for(claims.route, claims.session_id)
    gate.admission.enter(state)
    try:
        gate.routes.enter(claims.route)
    except Refusal:
        gate.admission.leave()
        raise
    state.seq += 1
    return _Admitted(gate, Call(claims, state, state.seq, dialect, body, messages, route, upstream))


class _Admitted(RelayResponse):
    def __init__(self, gate: Gate, call: Call) -> None:
        super().__init__(gate.relay, call)
        self._gate = gate

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        try:
            await super().__call__(scope, receive, send)  # type: ignore[arg-type]
        finally:
            self._gate.admission.leave()
            self._gate.routes.leave(self._call.claims.route)


def _stop(dialect: Dialect, claims: SessionClaims, state: SessionState, *, stream: bool) -> Response:
    state.stop_sent = True
    STOPS.labels("max_steps_reached").inc()
    text = (
        f"SAFACTORY_STOP: max_steps_reached. Session {claims.session_id} has reached max_steps={state.max_steps} after "
        f"{state.charged} real LLM request(s). Stop the task and return final status."
    )
    content = dialect.stop(text, claims.route, stream=stream)
    return Response(content, media_type="text/event-stream" if stream else "application/json")


def _route_of(body: Body) -> str:
    model = body.get("model")
    if not isinstance(model, str):
        raise Refusal(400, "bad_request", "model: expected the name of a route")
    return model


async def _body(request: Request, bytes_max: int) -> Body:
    raw = await request.body()
    if len(raw) > bytes_max:
        raise Refusal(413, "bad_request", f"the body has {len(raw)} bytes, over GATEWAY_BODY_BYTES_MAX={bytes_max}")
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise Refusal(400, "bad_request", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refusal(400, "bad_request", "the body is not a JSON object")
    return body


def _status(session_id: str, state: SessionState) -> dict[str, JsonValue]:
    return {
        "session_id": session_id,
        "attempt": state.attempt,
        "status": "closed" if state.closed else "active",
        "last_model": state.last_model,
        "first_seen_at": state.first_seen_s,
        "last_seen_at": state.last_seen_s,
        "close_reason": state.close_reason,
        "active_request_count": len(state.inflight),
        "request_count": state.seq,
        "error_count": state.error_count,
        "max_steps": state.max_steps,
        "llm_step_count": state.charged,
        "truncated": state.stop_sent,
        "truncate_reason": "max_steps_reached" if state.stop_sent else None,
        "stop_response_sent": state.stop_sent,
        "sealed": state.sealed is not None,
    }
