"""`Relay`: forward one call to its model server, bytes first, and record it before the client's last byte.

Every admitted call becomes exactly one step event, whatever happens: an answer, an upstream failure, silence, a cut
stream, or an agent that hangs up in any phase. The gateway does not retry a model server's refusal and never sends a
call elsewhere after one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping

import aiohttp
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from safactory.contracts.errors import BusError, ObjectError
from safactory.contracts.steps import StepStatus
from safactory.gateway.call import Call
from safactory.gateway.errors import error_response
from safactory.gateway.event_stream import EventStream
from safactory.gateway.session_book import SessionBook
from safactory.gateway.settings import GatewaySettings
from safactory.gateway.upstream_failure import describe_refusal, describe_silence, describe_unreachable
from safactory.infra.bus import Bus
from safactory.infra.health import counter, gauge
from safactory.infra.logs import log_context
from safactory.infra.objects import Objects

logger = logging.getLogger(__name__)

REQUESTS = counter("gateway_inference_requests", "Calls by their end", "endpoint", "status")
STREAMS = gauge("gateway_active_streams", "Streamed answers under way")
UNRECORDED = counter("gateway_unrecorded_calls", "Calls whose step neither the broker nor the disk took")

PASSED_HEADERS = ("content-type", "retry-after", "x-request-id")


class Relay:
    """What all calls of one gateway share."""

    def __init__(self, settings: GatewaySettings, book: SessionBook, bus: Bus, objects: Objects) -> None:
        self._settings = settings
        self._book = book
        self._bus = bus
        self._objects = objects
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_timeout_s, sock_read=self._settings.silence_timeout_s
        )
        connector = aiohttp.TCPConnector(limit=self._settings.max_inflight_requests, keepalive_timeout=4.0)
        self._http = aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=True)

    async def stop(self) -> None:
        """Close the connection pool."""
        if self._http:
            await self._http.close()

    async def serve(self, call: Call, receive: Receive, send: Send) -> None:
        """Answer one call; returns when it is recorded and the client has its answer or is gone."""
        exchange = asyncio.create_task(self._exchange(call, send))
        gone = asyncio.create_task(_hang_up(receive))
        call.state.inflight.add(exchange)
        call.state.idle.clear()
        STREAMS.inc(call.stream)
        try:
            await asyncio.wait({exchange, gone}, return_when=asyncio.FIRST_COMPLETED)
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)
        finally:
            gone.cancel()
            exchange.cancel()
            try:
                await asyncio.shield(self._record(call))
            except (BusError, ObjectError) as error:
                UNRECORDED.inc()
                logger.error("step %s of session %s is not recorded: %s", call.seq, call.claims.session_id, error)
            finally:
                call.state.inflight.discard(exchange)
                if not call.state.inflight:
                    call.state.idle.set()
                STREAMS.dec(call.stream)
                REQUESTS.labels(call.dialect.endpoint, call.status).inc()

    async def _exchange(self, call: Call, send: Send) -> None:
        try:
            await self._ask(call, send)
        except (aiohttp.ServerTimeoutError, TimeoutError):
            call.failed(StepStatus.TIMEOUT, 504, describe_silence(call.upstream.base_url, self._settings))
            await self._refuse(call, send, 504, "upstream_timeout")
        except aiohttp.ClientPayloadError as error:
            call.failed(
                StepStatus.UPSTREAM_TRUNCATED,
                502,
                _broken_off(call, str(error)),
            )
            await self._refuse(call, send, 502, "upstream_truncated")
        except aiohttp.ClientError as error:
            call.failed(StepStatus.UPSTREAM_ERROR, 503, describe_unreachable(call.upstream.base_url, error))
            await self._refuse(call, send, 503, "upstream_request_error")
        except (BusError, ObjectError) as error:
            # Neither the broker nor the disk took the step: an answer that is not recorded must not count.
            if not call.begun:
                await _send_response(call, send, error_response(503, "telemetry_unavailable", str(error)))

    async def _ask(self, call: Call, send: Send) -> None:
        assert self._http is not None, "serve() before start()"
        route = call.route
        sent = call.dialect.upstream_body(call.body, model=route.model, capture_tokens=route.capture_tokens)
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "X-Safactory-Session-Id": call.claims.session_id,
            **call.dialect.headers(route.api_key.get_secret_value()),
        }
        asked_s = time.monotonic()
        url = call.upstream.base_url.rstrip("/") + call.dialect.path
        async with await _post(self._http, url, json.dumps(sent).encode(), headers) as response:
            call.upstream_s = time.monotonic() - asked_s
            if response.status >= 400:
                await self._pass_refusal(call, send, response)
            elif response.content_type == "text/event-stream":
                await self._pass_stream(call, send, response)
            else:
                await self._pass_whole(call, send, response)
            call.upstream_s = time.monotonic() - asked_s

    async def _pass_refusal(self, call: Call, send: Send, response: aiohttp.ClientResponse) -> None:
        body = await response.read()
        text = describe_refusal(call.upstream.base_url, call.route.model, response.status, body)
        call.failed(StepStatus.UPSTREAM_ERROR, response.status, text)
        await self._record(call)
        await _send_head(call, send, response.status, _passed(response))
        await send({"type": "http.response.body", "body": body})

    async def _pass_whole(self, call: Call, send: Send, response: aiohttp.ClientResponse) -> None:
        body = await response.read()
        call.first_byte()
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            call.failed(
                StepStatus.UPSTREAM_ERROR,
                502,
                f"{call.upstream.base_url} answered 200 with a body that is not JSON: check --base-url",
            )
            await self._refuse(call, send, 502, "upstream_request_error")
            return
        answer = call.dialect.read(parsed)
        if not answer.finish_reason:
            call.answer = answer
            error = (
                f"the answer of {call.upstream.base_url} has no finish reason: it broke off; see the server's own log"
            )
            call.failed(StepStatus.UPSTREAM_TRUNCATED, 502, error)
            await self._refuse(call, send, 502, "upstream_truncated")
            return
        call.completed(answer)
        await self._record(call)
        await _send_head(call, send, response.status, _passed(response))
        await send({"type": "http.response.body", "body": body})

    async def _pass_stream(self, call: Call, send: Send, response: aiohttp.ClientResponse) -> None:
        await _send_head(call, send, response.status, _passed(response))
        stream, assembler, tail = EventStream(), call.dialect.assembler(), b""
        call.answer = assembler.answer()
        async for chunk in response.content.iter_any():
            call.first_byte()
            passed = []
            for block in stream.feed(chunk):
                if block.is_done:
                    tail = block.raw
                elif block.data is None or not call.dialect.unasked(call.body, block.data):
                    passed.append(block.raw)
                if block.data is not None:
                    assembler.feed(block.data)
            call.answer = assembler.answer()
            if passed:
                await send({"type": "http.response.body", "body": b"".join(passed), "more_body": True})
        # A finish reason is what makes an answer whole; the sentinel alone does not, and may be missing.
        if call.answer.finish_reason:
            call.completed(call.answer)
        else:
            call.failed(StepStatus.UPSTREAM_TRUNCATED, 502, _broken_off(call, "its stream has no finish reason"))
            tail = _error_event(call)
        await self._record(call)
        await send({"type": "http.response.body", "body": stream.rest + tail})

    async def _refuse(self, call: Call, send: Send, http_status: int, kind: str) -> None:
        await self._record(call)
        if call.begun:
            await send({"type": "http.response.body", "body": _error_event(call)})
        else:
            await _send_response(call, send, error_response(http_status, kind, call.error))

    async def _record(self, call: Call) -> None:
        if call.recording is None:
            call.recording = asyncio.create_task(self._publish(call))
        await asyncio.shield(call.recording)

    async def _publish(self, call: Call) -> None:
        with log_context(session_id=call.claims.session_id):
            step = await call.step(self._objects)
            await self._bus.publish(step)
            self._book.account(call.state, step)


class RelayResponse(Response):
    """A response that is made while it is sent."""

    def __init__(self, relay: Relay, call: Call) -> None:
        super().__init__()
        self._relay = relay
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the call."""
        await self._relay.serve(self._call, receive, send)


async def _post(
    http: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str]
) -> aiohttp.ClientResponse:
    try:
        return await http.post(url, data=body, headers=headers)
    except aiohttp.ServerDisconnectedError:
        # The server closed a kept-alive connection as we wrote to it; it saw no request, so a second try is safe.
        return await http.post(url, data=body, headers=headers)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _passed(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    found = [(name, response.headers[name]) for name in PASSED_HEADERS if name in response.headers]
    return [(name.encode(), value.encode("latin-1")) for name, value in found]


async def _send_head(call: Call, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    call.begun = True
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_response(call: Call, send: Send, response: Response) -> None:
    call.begun = True
    head: Message = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    await send(head)
    await send({"type": "http.response.body", "body": response.body})


def _broken_off(call: Call, how: str) -> str:
    return f"the answer of {call.upstream.base_url} broke off: {how}; see the server's own log"


def _error_event(call: Call) -> bytes:
    body = {"error": {"type": call.status, "message": call.error, "code": call.http_status}}
    return b"data: " + json.dumps(body).encode() + b"\n\n"
