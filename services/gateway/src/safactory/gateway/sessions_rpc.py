"""The gRPC side of the gateway: `Sessions`, for the scheduler."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from safactory.contracts.errors import BusError
from safactory.contracts.rpc.v1 import sessions_pb2, sessions_pb2_grpc
from safactory.gateway.sealing import Sealing

Context = grpc.aio.ServicerContext[Any, Any]


class SessionsServicer(sessions_pb2_grpc.SessionsServicer):
    """Answers Seal."""

    def __init__(self, sealing: Sealing) -> None:
        self._sealing = sealing

    async def Seal(  # noqa: N802  # the stubs' name
        self, request: sessions_pb2.SealRequest, context: Context
    ) -> sessions_pb2.SealResponse:
        """Seal one attempt."""
        try:
            sealed = await self._sealing.seal(request)
        except BusError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            raise
        response = sessions_pb2.SealResponse(
            last_seq=sealed.last_seq,
            prompt_tokens=sealed.prompt_tokens,
            completion_tokens=sealed.completion_tokens,
            truncated=sealed.truncated,
        )
        if sealed.last_error is not None:
            response.last_error.http_status = sealed.last_error.http_status
            response.last_error.message = sealed.last_error.message
            response.last_error.retryable = sealed.last_error.retryable
        return response
