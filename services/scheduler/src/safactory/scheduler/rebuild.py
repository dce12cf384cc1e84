"""Rebuild the job book from the bus, and take up what a restart interrupted."""

from __future__ import annotations

import time

from safactory.contracts.topics import JOB, SESSION
from safactory.infra.bus import Bus
from safactory.infra.consumer import Delivery
from safactory.infra.read_to_end import read_to_end
from safactory.scheduler.finisher import Finisher
from safactory.scheduler.job_book import JobBook, Phase
from safactory.scheduler.lease_book import LeaseBook


async def rebuild(bus: Bus, book: JobBook) -> None:
    """Fold the job topic, then the session topic, as far as they go now."""

    async def apply(delivery: Delivery) -> None:
        book.apply(delivery.event)

    for topic in (JOB, SESSION):
        await read_to_end(bus, "scheduler-rebuild", [topic], apply)


def take_up(book: JobBook, leases: LeaseBook, finisher: Finisher) -> None:
    """Give back the leases that were held, and go on sealing what had finished.

    A worker that survived keeps its session: its next heartbeat finds the lease. One that did not, loses it in time.
    """
    for job in book.jobs.values():
        for session in job.sessions.values():
            if session.phase is Phase.LEASED and session.lease is not None:
                leases.grant(session.lease)
            elif session.phase is Phase.FINISHED or (session.phase is Phase.SEALED and session.outcome is not None):
                session.phase, before = Phase.FINISHED, session.phase
                job.phases[before] -= 1
                job.phases[Phase.FINISHED] += 1
                finisher.seal_later(job, session)
            session.score_by_s = time.monotonic() + 600
