"""`LeaseBook`: who holds which attempt until when.

A lease has one owner and one fence. What comes with an older fence, or after the lease has expired, is refused; the
fences grow over restarts, because they are on the bus.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from safactory.contracts.sessions import SessionLeased


@dataclass(slots=True)
class Lease:
    """One attempt in one worker's hands."""

    event: SessionLeased
    expires_s: float


@dataclass(slots=True)
class Worker:
    """One worker, as it last said."""

    slots: int
    seen_s: float = field(default_factory=time.monotonic)


class LeaseBook:
    """All leases that are held, and the workers that hold them."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._leases: dict[str, Lease] = {}
        self.workers: dict[str, Worker] = {}
        self.busy_s = 0.0
        """Slot-seconds in use since the start."""
        self.capacity_s = 0.0
        """Slot-seconds on offer since the start."""
        self._accounted_s = time.monotonic()

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def slots(self) -> int:
        """Sessions that the workers of the last lease time can run at once."""
        horizon = time.monotonic() - self._ttl_s
        return sum(worker.slots for worker in self.workers.values() if worker.seen_s >= horizon)

    def grant(self, event: SessionLeased) -> None:
        """Take note of a lease that was given."""
        self._leases[event.lease_id] = Lease(event, time.monotonic() + self._ttl_s)

    def renew(self, lease_id: str, fence: int) -> bool:
        """Prolong a lease; False when it is not held any more."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.event.fence != fence:
            return False
        lease.expires_s = time.monotonic() + self._ttl_s
        return True

    def take_back(self, lease_id: str, fence: int) -> SessionLeased | None:
        """End a lease and return it; None when it is not held any more."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.event.fence != fence:
            return None
        del self._leases[lease_id]
        return lease.event

    def expired(self) -> list[SessionLeased]:
        """Return the leases that ran out, without ending them."""
        moment = time.monotonic()
        return [lease.event for lease in self._leases.values() if lease.expires_s < moment]

    def seen(self, worker_id: str, slots: int | None = None) -> None:
        """Take note of a sign of life."""
        worker = self.workers.setdefault(worker_id, Worker(slots or 0))
        worker.seen_s = time.monotonic()
        if slots is not None:
            worker.slots = slots

    def account(self) -> None:
        """Add the time since the last call to the sums."""
        moment = time.monotonic()
        passed_s, self._accounted_s = moment - self._accounted_s, moment
        self.busy_s += passed_s * len(self._leases)
        self.capacity_s += passed_s * max(self.slots, len(self._leases))
