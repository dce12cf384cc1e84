"""`WeightsPush`: the trainer's side of a weight push, to every model server at once.

Prepare → push → verify on each, then commit on those that verified. Guarantees: every call has a deadline; a server
that fails is told to abort, keeps what it served, and is named as quarantined; a version counts as published only when
at least one server has committed it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from safactory.contracts.errors import WeightsError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.rpc.v1 import weights_pb2, weights_pb2_grpc
from safactory.infra.health import counter
from safactory.trainer.weight_update import WeightUpdate

logger = logging.getLogger(__name__)

QUARANTINED = counter("trainer_engines_quarantined", "Pushes after which a model server was quarantined", "engine")
ABORT_TIMEOUT_S = 5.0
_Call: TypeAlias = Callable[[str, WeightUpdate], Awaitable[None]]


@dataclass(frozen=True)
class Serving:
    """What one model server serves."""

    version: WeightVersion
    digest: str


@dataclass(frozen=True)
class PushOutcome:
    """What became of one version."""

    committed: list[str]
    quarantined: list[str]
    push_s: float
    """From the first prepare to the last commit."""


class WeightsPush:
    """Connections to the weights services of all model servers."""

    def __init__(self, addresses: Iterable[str], timeout_s: float) -> None:
        self.addresses = list(addresses)
        """The model servers."""
        self._timeout_s = timeout_s

    @functools.cached_property
    def _channels(self) -> dict[str, grpc.aio.Channel]:
        # A channel belongs to the event loop that runs when it is made, so none is made before the first call.
        return {address: grpc.aio.insecure_channel(address) for address in self.addresses}

    @functools.cached_property
    def _stubs(self) -> dict[str, weights_pb2_grpc.WeightsAsyncStub]:
        return {
            address: weights_pb2_grpc.WeightsStub(channel)  # type: ignore[misc]  # async by its channel
            for address, channel in self._channels.items()
        }

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(channel.close(None) for channel in self._channels.values()))

    async def serving(self) -> dict[str, Serving]:
        """Return what each server that answers serves."""
        answers = await asyncio.gather(*(self._status(address) for address in self._stubs), return_exceptions=True)
        found = {}
        for address, answer in zip(self._stubs, answers, strict=True):
            if isinstance(answer, Serving):
                found[address] = answer
            elif isinstance(answer, WeightsError):
                logger.warning("%s", answer)
            else:
                raise answer
        return found

    async def push(self, update: WeightUpdate, addresses: Iterable[str] | None = None) -> PushOutcome:
        """Put a version into every server, or into some.

        Raises:
            WeightsError: none of them committed it.
        """
        targets = self.addresses if addresses is None else list(addresses)
        began = time.perf_counter()
        staged = await self._all(targets, self._stage, update)
        committed = await self._all(staged, self._commit, update)
        failed = [address for address in targets if address not in committed]
        await asyncio.gather(*(self._abort(address, update) for address in failed))
        for address in failed:
            QUARANTINED.labels(address).inc()
        if targets and not committed:
            raise WeightsError(f"no model server took version {update.version}: {', '.join(failed)}")
        return PushOutcome(committed, failed, time.perf_counter() - began)

    async def _all(self, addresses: list[str], call: _Call, update: WeightUpdate) -> list[str]:
        """Make one call to each server and return those that it went well with."""
        results = await asyncio.gather(*(call(address, update) for address in addresses), return_exceptions=True)
        well = []
        for address, result in zip(addresses, results, strict=True):
            if result is None:
                well.append(address)
            elif isinstance(result, WeightsError):
                logger.warning("%s", result)
            else:
                raise result
        return well

    async def _status(self, address: str) -> Serving:
        try:
            status = await self._stubs[address].GetStatus(weights_pb2.GetStatusRequest(), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _named(address, "status", error) from error
        return Serving(WeightVersion(epoch=status.serving.epoch, step=status.serving.step), status.serving_digest)

    async def _stage(self, address: str, update: WeightUpdate) -> None:
        stub, limit_s = self._stubs[address], self._timeout_s
        try:
            await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest), timeout=limit_s)
            await stub.Push(update.chunks(), timeout=limit_s)
            request = weights_pb2.VerifyRequest(version=update.manifest.version)
            verified = await stub.Verify(request, timeout=limit_s)
        except grpc.aio.AioRpcError as error:
            raise _named(address, "push", error) from error
        if not verified.match or verified.digest != update.digest:
            raise WeightsError(f"{address} received other bytes of version {update.version}: {verified.mismatched[:3]}")

    async def _commit(self, address: str, update: WeightUpdate) -> None:
        request = weights_pb2.CommitRequest(version=update.manifest.version, digest=update.digest)
        try:
            await self._stubs[address].Commit(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _named(address, "commit", error) from error

    async def _abort(self, address: str, update: WeightUpdate) -> None:
        request = weights_pb2.AbortRequest(version=update.manifest.version)
        try:
            await self._stubs[address].Abort(request, timeout=ABORT_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            logger.info("%s", _named(address, "abort", error))


def _named(address: str, what: str, error: grpc.aio.AioRpcError) -> WeightsError:
    return WeightsError(f"{what} to {address}: {error.code().name}: {error.details()}")
