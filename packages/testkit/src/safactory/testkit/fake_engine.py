"""A fake model server: OpenAI chat completions with scripted replies and faults, as a real HTTP server.

`python -m safactory.testkit.fake_engine PORT` serves it; tests run it in a thread with `serving()`. The reply, and the
fault, are chosen by the test through `script`, or, from another process, by a `fault:NAME` word in the last message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from safactory.testkit.ports import free_port

FAULTS = ("401", "404", "429", "500", "stall", "cut", "cut_stream", "garbage", "no_finish")
MODEL = "fake"

Script = Callable[[list[dict[str, Any]]], str]
"""Messages → the reply's text; a reply of `fault:NAME` makes that fault."""


@dataclass
class FakeEngine:
    """What the server does, and what it saw."""

    script: Script = lambda messages: "ok"
    stall_s: float = 30.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    hang_ups: int = 0
    """Requests whose client went away before the answer."""
    weight_version: str = "0.0"

    def app(self) -> FastAPI:
        """Return the server."""
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            body = await request.json()
            self.requests.append(body)
            text = self.script(body["messages"])
            named = re.search(r"fault:(\w+)", text) or re.search(r"fault:(\w+)", str(body["messages"][-1]["content"]))
            if body["model"] != MODEL:
                return _error(404, f"The model `{body['model']}` does not exist.")
            return await self._answer(request, body, text, named.group(1) if named else "")

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}

        return app

    async def _answer(self, request: Request, body: dict[str, Any], text: str, fault: str) -> Response:
        if fault in ("401", "404", "429", "500"):
            return _error(int(fault), {"401": "Incorrect API key provided."}.get(fault, f"scripted {fault}"))
        if fault == "stall":
            await self._stall(request)
        if fault == "garbage":
            return Response("not json", media_type="application/json")
        if fault == "cut":
            return _Cut()
        if body.get("stream"):
            return StreamingResponse(self._events(body, text, fault), media_type="text/event-stream")
        return JSONResponse(self._whole(body, text, fault))

    async def _stall(self, request: Request) -> None:
        for _ in range(int(self.stall_s / 0.05)):
            if await request.is_disconnected():
                self.hang_ups += 1
                return
            await asyncio.sleep(0.05)

    def _whole(self, body: dict[str, Any], text: str, fault: str) -> dict[str, Any]:
        ids = [ord(char) for char in text]
        choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}}
        choice["finish_reason"] = None if fault == "no_finish" else "stop"
        answer = {"id": "fake", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        answer["usage"] = self._usage(body, text)
        if body.get("logprobs"):
            choice["logprobs"] = {
                "content": [{"token": c, "logprob": -0.5, "bytes": None, "top_logprobs": []} for c in text]
            }
        if body.get("return_token_ids"):
            answer["prompt_token_ids"] = [1, 2, 3]
            choice["token_ids"] = ids
        if body.get("return_weight_versions"):
            choice["weight_versions"] = [{"version": self.weight_version, "start": 0, "end": len(ids)}]
        return answer

    async def _events(self, body: dict[str, Any], text: str, fault: str) -> AsyncIterator[bytes]:
        head = {"id": "fake", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
        pieces = [text[i : i + 2] for i in range(0, len(text), 2)] or [""]
        for number, piece in enumerate(pieces):
            delta = {"role": "assistant", "content": piece} if number == 0 else {"content": piece}
            yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            if fault == "cut_stream":
                return
            await asyncio.sleep(self.stall_s if fault == "stall_stream" else 0)
        yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _event({**head, "choices": [], "usage": self._usage(body, text)})
        yield b"data: [DONE]\n\n"

    def _usage(self, body: dict[str, Any], text: str) -> dict[str, int]:
        prompt = sum(len(str(message["content"]).split()) for message in body["messages"])
        return {"prompt_tokens": prompt, "completion_tokens": len(text), "total_tokens": prompt + len(text)}


class _Cut(Response):
    """Promises more bytes than it sends, then closes."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b'{"id": "fake"', "more_body": False})


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "scripted", "code": status}}, status_code=status)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@contextlib.contextmanager
def serving(engine: FakeEngine) -> Iterator[str]:
    """Serve in a thread; yields the base URL, up to and including /v1."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(engine.app(), host="127.0.0.1", port=port, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the fake engine did not start")
        threading.Event().wait(0.01)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)


if __name__ == "__main__":
    uvicorn.run(FakeEngine().app(), host="127.0.0.1", port=int(sys.argv[1]), log_config=None)
