"""`WeightsService`: the gRPC side of a weight push. Prepare → Push → Verify → Commit, or Abort at any point.

Guarantees: nothing but a Commit of a verified digest changes what is served, so a version is a consequence of the
weights and never a label; versions only grow, and the served version with its own digest is accepted again without
effect; a push that was cut or refused leaves nothing staged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
import torch

from safactory.contracts.errors import WeightsError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.rpc.v1 import weights_pb2, weights_pb2_grpc
from safactory.inference.engine import Engine, Served
from safactory.inference.model import Qwen3
from safactory.inference.staged_weights import StagedWeights

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

MESSAGE_BYTES_MAX = 64 * 1024 * 1024


class WeightsService(weights_pb2_grpc.WeightsServicer):
    """Weights of one engine."""

    def __init__(self, engine: Engine, model_name: str, dtype: torch.dtype, device: str) -> None:
        self._engine = engine
        self._model_name = model_name
        self._dtype = dtype
        self._device = device
        self._staged: StagedWeights | None = None
        # Verify and Commit run beside other calls: one at a time may look at what is staged.
        self._turn = asyncio.Lock()

    @property
    def received_bytes(self) -> int:
        """Bytes that have come of what is staged; 0 when nothing is."""
        return 0 if self._staged is None else self._staged.received_bytes

    async def GetStatus(  # noqa: N802  # the name is the protocol's
        self,
        request: weights_pb2.GetStatusRequest,
        context: grpc.aio.ServicerContext[weights_pb2.GetStatusRequest, weights_pb2.WeightsStatus],
    ) -> weights_pb2.WeightsStatus:
        """Say what is served and what is staged."""
        served = self._engine.served
        return weights_pb2.WeightsStatus(
            model=self._model_name,
            serving=_proto(served.version),
            serving_digest=served.digest,
            staged=None if self._staged is None else _proto(self._staged.version),
            commits=self._engine.swaps,
        )

    async def Prepare(  # noqa: N802
        self,
        request: weights_pb2.PrepareRequest,
        context: grpc.aio.ServicerContext[weights_pb2.PrepareRequest, weights_pb2.PrepareResponse],
    ) -> weights_pb2.PrepareResponse:
        """Make room for a version, in place of one that was never committed."""

        async def prepare() -> weights_pb2.PrepareResponse:
            self._staged = None
            if request.manifest.model != self._model_name:
                raise WeightsError(f"served here is {self._model_name!r}, not {request.manifest.model!r}")
            staged = StagedWeights(request.manifest, self._engine.served.model.config)
            self._check_newer(staged.version, staged.manifest.digest)
            self._staged = staged
            return weights_pb2.PrepareResponse()

        return await self._guarded(prepare, context)

    async def Push(  # noqa: N802
        self,
        request_iterator: AsyncIterator[weights_pb2.PushRequest],
        context: grpc.aio.ServicerContext[weights_pb2.PushRequest, weights_pb2.PushResponse],
    ) -> weights_pb2.PushResponse:
        """Take the tensors' bytes, all in one stream."""
        # Without the turn: a client that stalls here must not keep another from preparing or aborting.
        try:
            staged = await self._receive(request_iterator)
        except WeightsError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise
        return weights_pb2.PushResponse(bytes=staged.received_bytes, tensors=staged.received_tensors)

    async def Verify(  # noqa: N802
        self,
        request: weights_pb2.VerifyRequest,
        context: grpc.aio.ServicerContext[weights_pb2.VerifyRequest, weights_pb2.VerifyResponse],
    ) -> weights_pb2.VerifyResponse:
        """Hash what was received."""

        async def verify() -> weights_pb2.VerifyResponse:
            found = await asyncio.to_thread(self._staged_as(request.version).verify)
            return weights_pb2.VerifyResponse(match=found.match, digest=found.digest, mismatched=found.mismatched)

        return await self._guarded(verify, context)

    async def Commit(  # noqa: N802
        self,
        request: weights_pb2.CommitRequest,
        context: grpc.aio.ServicerContext[weights_pb2.CommitRequest, weights_pb2.CommitResponse],
    ) -> weights_pb2.CommitResponse:
        """Serve the staged version from the next decode step on."""

        async def commit() -> weights_pb2.CommitResponse:
            served = self._engine.served
            version = _version(request.version)
            if version == served.version and request.digest == served.digest:
                return weights_pb2.CommitResponse(serving=request.version)
            staged = self._staged_as(request.version)
            if not staged.verified_digest or staged.verified_digest != request.digest:
                raise WeightsError(f"version {version} is not verified with the digest {request.digest!r}")
            self._check_newer(version, request.digest)
            model = await asyncio.to_thread(Qwen3, served.model.config, staged.tensors(), self._dtype, self._device)
            swap_s = await asyncio.wrap_future(self._engine.swap(Served(model, version, request.digest)))
            self._staged = None
            logger.info("serving version %s with digest %s", version, request.digest[:12])
            return weights_pb2.CommitResponse(serving=request.version, swap_s=swap_s)

        return await self._guarded(commit, context)

    async def Abort(  # noqa: N802
        self,
        request: weights_pb2.AbortRequest,
        context: grpc.aio.ServicerContext[weights_pb2.AbortRequest, weights_pb2.AbortResponse],
    ) -> weights_pb2.AbortResponse:
        """Drop what is staged."""

        async def abort() -> weights_pb2.AbortResponse:
            if self._staged is not None and self._staged.version == _version(request.version):
                self._staged = None
            return weights_pb2.AbortResponse()

        return await self._guarded(abort, context)

    async def _receive(self, chunks: AsyncIterator[weights_pb2.PushRequest]) -> StagedWeights:
        """Fill what is staged, or drop it when that comes to nothing."""
        staged = self._staged
        whole = False
        try:
            async for chunk in chunks:
                self._still_staged(staged, chunk.version).write(chunk.name, chunk.offset, chunk.data)
            if staged is None or staged is not self._staged:
                raise WeightsError(
                    "nothing is staged, or it was replaced meanwhile: prepare the version and push it again"
                )
            # gRPC lets a stream that its client has cut end here like a finished one: only the bytes tell.
            if staged.missing_bytes:
                raise WeightsError(f"{staged.missing_bytes} bytes are missing: prepare the version and push it again")
            whole = True
            return staged
        finally:
            if not whole and self._staged is staged:
                self._staged = None

    def _staged_as(self, version: weights_pb2.WeightVersion) -> StagedWeights:
        if self._staged is None or self._staged.version != _version(version):
            staged = "nothing" if self._staged is None else str(self._staged.version)
            raise WeightsError(f"version {_version(version)} is not staged; staged is {staged}")
        return self._staged

    def _still_staged(self, staged: StagedWeights | None, version: weights_pb2.WeightVersion) -> StagedWeights:
        if staged is not self._staged:
            raise WeightsError("what was staged when this push began has been replaced")
        return self._staged_as(version)

    def _check_newer(self, version: WeightVersion, digest: str) -> None:
        served = self._engine.served
        again = version == served.version and digest == served.digest
        if not again and not served.version < version:
            raise WeightsError(f"version {version} is not newer than {served.version}, which is served")

    async def _guarded(
        self, call: Callable[[], Awaitable[Answer]], context: grpc.aio.ServicerContext[Any, Answer]
    ) -> Answer:
        """Run one call alone; a refusal becomes FAILED_PRECONDITION with its reason."""
        async with self._turn:
            try:
                return await call()
            except WeightsError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                raise


def _version(version: weights_pb2.WeightVersion) -> WeightVersion:
    return WeightVersion(epoch=version.epoch, step=version.step)


def _proto(version: WeightVersion) -> weights_pb2.WeightVersion:
    return weights_pb2.WeightVersion(epoch=version.epoch, step=version.step)


async def start_weights_server(service: WeightsService, host: str, port: int) -> tuple[grpc.aio.Server, int]:
    """Serve the weights service; return the server and its port."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)])
    weights_pb2_grpc.add_WeightsServicer_to_server(service, server)
    bound = server.add_insecure_port(f"{host}:{port}")
    await server.start()
    return server, bound
