"""`SchedulerClient`: the worker's end of the `Leases` service."""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio

from safactory.contracts.errors import ServiceError
from safactory.contracts.rpc.v1 import leases_pb2 as pb
from safactory.contracts.rpc.v1 import leases_pb2_grpc as rpc

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
CALL_TIMEOUT_S = 10.0

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class SchedulerClient:
    """One worker's connection; it outlives restarts of the scheduler."""

    def __init__(self, address: str, worker_id: str) -> None:
        self._address = address
        self._worker_id = worker_id
        self._channel: grpc.aio.Channel | None = None
        self._stub: rpc.LeasesAsyncStub
        self.connected = False
        """Whether the last call was answered."""

    async def start(self) -> None:
        """Open the connection; a scheduler that is away delays nobody."""
        self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        self._stub = rpc.LeasesStub(self._channel)  # type: ignore[assignment]

    async def acquire(self, slots: int, leases_max: int, wait_s: float, runtimes: Sequence[str]) -> list[pb.Lease]:
        """Wait up to wait_s for leases.

        Raises:
            ServiceError: the scheduler did not answer.
        """
        request = pb.AcquireRequest(
            worker_id=self._worker_id, slots=slots, max_leases=leases_max, wait_s=wait_s, runtimes=runtimes
        )
        try:
            response = await self._stub.Acquire(request, timeout=wait_s + CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error
        self.connected = True
        return list(response.leases)

    async def heartbeat(self, refs: Sequence[pb.LeaseRef]) -> list[str]:
        """Keep leases alive and return the ids of those that must stop.

        Raises:
            ServiceError: the scheduler did not answer.
        """
        try:
            response = await self._stub.Heartbeat(
                pb.HeartbeatRequest(worker_id=self._worker_id, leases=refs), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error
        self.connected = True
        return list(response.stop)

    async def complete(self, lease: pb.Lease, outcome_json: str) -> str:
        """Report an ending and return the scheduler's refusal, empty when it took it.

        Raises:
            ServiceError: the scheduler did not answer.
        """
        request = pb.CompleteRequest(
            worker_id=self._worker_id,
            lease=ref_of(lease),
            session_id=lease.session_id,
            attempt=lease.attempt,
            outcome_json=outcome_json,
        )
        try:
            response = await self._stub.Complete(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error
        self.connected = True
        return "" if response.accepted else response.refusal or "refused"

    def check(self) -> None:
        """Return when the scheduler answers.

        Raises:
            ServiceError: it does not.
        """
        if not self.connected:
            raise ServiceError(f"no answer from the scheduler at {self._address}")

    async def close(self) -> None:
        """Close the connection."""
        if self._channel:
            await self._channel.close(None)

    def _failure(self, error: grpc.aio.AioRpcError) -> ServiceError:
        self.connected = False
        return ServiceError(f"the scheduler at {self._address}: {error.code().name}: {error.details()}")


def ref_of(lease: pb.Lease) -> pb.LeaseRef:
    """Return what names a lease to the scheduler."""
    return pb.LeaseRef(lease_id=lease.lease_id, fence=lease.fence)
