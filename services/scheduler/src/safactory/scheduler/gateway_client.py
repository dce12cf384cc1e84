"""The gateway, as the scheduler calls it: seal an attempt."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import grpc.aio

from safactory.contracts.rpc.v1 import sessions_pb2, sessions_pb2_grpc
from safactory.contracts.sessions import CallError, SessionQueued, SessionSealed

logger = logging.getLogger(__name__)

RETRY_MAX_S = 5.0


class GatewayClient:
    """Seals attempts; a gateway that is away is waited for."""

    def __init__(self, address: str, drain_s: float) -> None:
        self._address = address
        self._drain_s = drain_s
        self._channel: grpc.aio.Channel | None = None

    async def start(self) -> None:
        """Open the channel."""
        self._channel = grpc.aio.insecure_channel(self._address)

    async def stop(self) -> None:
        """Close the channel."""
        if self._channel:
            await self._channel.close(None)

    async def seal(self, queued: SessionQueued, reason: str) -> SessionSealed:
        """Seal an attempt and return what the gateway says of it; sealing again answers the same."""
        assert self._channel is not None, "seal() before start()"
        # At run time one stub class serves both kinds of channel; only the type stubs tell them apart.
        stub = cast("sessions_pb2_grpc.SessionsAsyncStub", sessions_pb2_grpc.SessionsStub(self._channel))
        request = sessions_pb2.SealRequest(
            session_id=queued.session_id,
            job_id=queued.job_id,
            group_id=queued.group_id,
            attempt=queued.attempt,
            environment=queued.environment,
            reason=reason,
            drain_timeout_s=self._drain_s,
        )
        pause_s = 0.1
        while True:
            try:
                response = await stub.Seal(request, timeout=self._drain_s + 10)
            except grpc.aio.AioRpcError as error:
                logger.warning("gateway %s did not seal %s: %s", self._address, queued.session_id, error.details())
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_MAX_S, pause_s * 2)
            else:
                return _sealed(queued, response)


def _sealed(queued: SessionQueued, response: sessions_pb2.SealResponse) -> SessionSealed:
    error = response.last_error
    return SessionSealed(
        session_id=queued.session_id,
        attempt=queued.attempt,
        job_id=queued.job_id,
        group_id=queued.group_id,
        environment=queued.environment,
        last_seq=response.last_seq,
        prompt_tokens=response.prompt_tokens,
        completion_tokens=response.completion_tokens,
        truncated=response.truncated,
        last_error=CallError(http_status=error.http_status, message=error.message, retryable=error.retryable)
        if response.HasField("last_error")
        else None,
    )
