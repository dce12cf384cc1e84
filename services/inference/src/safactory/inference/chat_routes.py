"""The OpenAI routes: `POST /v1/chat/completions` and `GET /v1/models`.

Guarantees: every refusal has OpenAI's error shape; a client that hangs up, before or in the middle of its answer, ends
its generation; a stream that cannot go on ends with an error event and without a finish reason.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import JsonValue

from safactory.contracts.errors import PoisonError, UpstreamError
from safactory.inference.chat_request import ChatRequest, parse_request
from safactory.inference.chat_response import DONE, Answer
from safactory.inference.engine import Engine
from safactory.inference.generation import Update

RETRY_AFTER_S = 1
CLIENT_CLOSED = 499
"""What the log says of a request whose client is gone; nobody receives it."""
_TYPE_OF = {400: "invalid_request_error", 404: "invalid_request_error", 429: "rate_limit_error"}
_CODE_OF = {400: "invalid_request", 404: "model_not_found", 429: "rate_limit_exceeded"}


def chat_routes(engine: Engine, model_name: str) -> APIRouter:
    """Return the routes of one engine."""
    router = APIRouter()
    started = int(time.time())

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        try:
            return await _complete(engine, model_name, request)
        except UpstreamError as error:
            return error_response(error)

    @router.get("/v1/models")
    async def models() -> JSONResponse:
        model: dict[str, JsonValue] = {
            "id": model_name,
            "object": "model",
            "created": started,
            "owned_by": "safactory",
            "max_model_len": engine.limits.context_max,
        }
        return JSONResponse({"object": "list", "data": [model]})

    return router


async def _complete(engine: Engine, model_name: str, http: Request) -> Response:
    request = parse_request(await http.body())
    if request.model != model_name:
        message = f"the model {request.model!r} does not exist; served is {model_name!r}"
        raise UpstreamError(message, http_status=404, retryable=False)
    answer = _submit(engine, request)
    if request.stream:
        return StreamingResponse(_stream(engine, answer), media_type="text/event-stream")
    update = await _whole_unless_gone(engine, answer, http)
    if update is None:
        return Response(status_code=CLIENT_CLOSED)
    return Response(answer.whole(update), media_type="application/json")


def _submit(engine: Engine, request: ChatRequest) -> Answer:
    tokenizer = engine.tokenizer
    try:
        text = tokenizer.render([message.for_template() for message in request.messages], request.tools)
    except PoisonError as error:
        raise UpstreamError(str(error), http_status=400, retryable=False) from error
    wanted = request.generation(tokenizer.encode(text), engine.limits.context_max)
    return Answer(request, engine.submit(wanted), tokenizer)


async def _whole_unless_gone(engine: Engine, answer: Answer, http: Request) -> Update | None:
    """Return the whole completion, or None when the client hung up before it was there."""
    whole = asyncio.ensure_future(answer.generation.whole())
    # The body has been read: the next message that the server has for us is the disconnect.
    gone = asyncio.ensure_future(http.receive())
    try:
        await asyncio.wait((whole, gone), return_when=asyncio.FIRST_COMPLETED)
        return whole.result() if whole.done() else None
    finally:
        gone.cancel()
        if not whole.done():
            engine.abort(answer.generation)
            whole.cancel()


async def _stream(engine: Engine, answer: Answer) -> AsyncIterator[bytes]:
    try:
        yield answer.first_chunk()
        async for update in answer.generation.updates():
            yield answer.chunk(update)
        if answer.request.include_usage:
            yield answer.usage_chunk()
        yield DONE
    except UpstreamError as error:
        yield b"data: " + json.dumps(error_body(error)).encode() + b"\n\n"
    finally:
        engine.abort(answer.generation)


def error_response(error: UpstreamError) -> JSONResponse:
    """Return a refusal as OpenAI's clients read it."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.http_status in (429, 503) else None
    return JSONResponse(error_body(error), status_code=error.http_status, headers=headers)


def error_body(error: UpstreamError) -> dict[str, JsonValue]:
    """Return OpenAI's error object."""
    kind = _TYPE_OF.get(error.http_status, "server_error")
    return {"error": {"message": str(error), "type": kind, "param": None, "code": _CODE_OF.get(error.http_status)}}
