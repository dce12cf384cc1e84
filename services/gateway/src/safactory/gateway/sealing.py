"""Sealing: an attempt's end as far as the model is concerned. After it, the last step number is final."""

from __future__ import annotations

import asyncio

from safactory.contracts.rpc.v1 import sessions_pb2
from safactory.contracts.sessions import SessionSealed
from safactory.gateway.session_book import SessionBook
from safactory.infra.bus import Bus


class Sealing:
    """Closes sessions and says so on the bus."""

    def __init__(self, book: SessionBook, bus: Bus) -> None:
        self._book = book
        self._bus = bus

    async def seal(self, request: sessions_pb2.SealRequest) -> SessionSealed:
        """Refuse further calls, wait for those in flight, cut what is left, and publish; repeats answer the same.

        Raises:
            BusError: the event is not durable; the session stays closed, and a repeat tries again.
        """
        state = self._book.at(request.session_id, request.attempt)
        state.closed = True
        state.close_reason = state.close_reason or request.reason
        if state.inflight:
            await asyncio.wait(state.inflight, timeout=request.drain_timeout_s or 1.0)
            for exchange in state.inflight:
                exchange.cancel()
            await state.idle.wait()
        if state.sealed is None:
            sealed = SessionSealed(
                session_id=request.session_id,
                attempt=request.attempt,
                job_id=request.job_id,
                group_id=request.group_id,
                environment=request.environment,
                last_seq=state.seq,
                prompt_tokens=state.prompt_tokens,
                completion_tokens=state.completion_tokens,
                truncated=state.stop_sent,
                last_error=state.last_error,
            )
            await self._bus.publish(sealed)
            state.sealed = sealed
        self._book.forget_old()
        return state.sealed
