"""The weights side of the client: what a model server serves, over gRPC, synchronous and asynchronous."""

from __future__ import annotations

from typing import cast

import grpc
import grpc.aio

from safactory.contracts.errors import ServiceError
from safactory.contracts.event import Model
from safactory.contracts.ids import WeightVersion
from safactory.contracts.rpc.v1 import weights_pb2, weights_pb2_grpc

TIMEOUT_S = 5.0


class ServedWeights(Model):
    """What one model server serves."""

    address: str
    model: str
    version: WeightVersion
    digest: str
    commits: int


def served_weights(address: str) -> ServedWeights:
    """Ask one model server.

    Raises:
        ServiceError: it did not answer.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            status = weights_pb2_grpc.WeightsStub(channel).GetStatus(weights_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            raise ServiceError(f"model server {address}: {error}") from error
    return _served(address, status)


async def served_weights_async(address: str) -> ServedWeights:
    """Ask one model server.

    Raises:
        ServiceError: it did not answer.
    """
    async with grpc.aio.insecure_channel(address) as channel:
        stub = cast("weights_pb2_grpc.WeightsAsyncStub", weights_pb2_grpc.WeightsStub(channel))
        try:
            status = await stub.GetStatus(weights_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise ServiceError(f"model server {address}: {error.details()}") from error
    return _served(address, status)


def _served(address: str, status: weights_pb2.WeightsStatus) -> ServedWeights:
    return ServedWeights(
        address=address,
        model=status.model,
        version=WeightVersion(epoch=status.serving.epoch, step=status.serving.step),
        digest=status.serving_digest,
        commits=status.commits,
    )
