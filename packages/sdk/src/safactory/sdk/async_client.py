"""The asynchronous client: every call of `Safactory`, with `await`."""

from __future__ import annotations

from typing import Self, TypeVar

import httpx

from safactory.contracts.jobs import JobRequest
from safactory.sdk.calls import TIMEOUT_S, Call, Calls, Facts

A = TypeVar("A")


class AsyncSafactory:
    """An asynchronous client.

    Every call raises ConfigError when the service refuses what was asked, with the reason and the way out
    (NotFoundError when it does not know the id), and ServiceError when it does not answer.
    """

    def __init__(self, scheduler: str, dataelf: str) -> None:
        self._calls = Calls(scheduler, dataelf)
        self._http = httpx.AsyncClient(timeout=TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def submit(self, request: JobRequest) -> Facts:
        """Submit a job and return its status; a refusal names file and line."""
        return await self._send(self._calls.submit(request))

    async def jobs(self) -> list[Facts]:
        """Return the status of every job that the scheduler knows."""
        return await self._send(self._calls.jobs())

    async def job(self, job_id: str) -> Facts:
        """Return a job's status."""
        return await self._send(self._calls.job(job_id))

    async def cancel(self, job_id: str, reason: str) -> Facts:
        """Stop a job and return its status."""
        return await self._send(self._calls.cancel(job_id, reason))

    async def resume(self, job_id: str) -> Facts:
        """Run again what a job did not score, also after its stack was gone: the archive gives its events back."""
        return await self._send(self._calls.resume(job_id, await self._send(self._calls.archived_events(job_id))))

    async def job_spec(self, job_id: str) -> Facts:
        """Return a job as it was accepted."""
        return await self._send(self._calls.job_spec(job_id))

    async def results(self, job_id: str) -> Facts:
        """Return a job's result table."""
        return await self._send(self._calls.results(job_id))

    async def audit(self, job_id: str) -> Facts:
        """Return whether the archive has all of a job."""
        return await self._send(self._calls.audit(job_id))

    async def archived_jobs(self) -> list[Facts]:
        """Return every job in the archive, the newest first."""
        return await self._send(self._calls.archived_jobs())

    async def sessions(self, job_id: str, limit: int = 100) -> list[Facts]:
        """Return a job's ended sessions, the newest first."""
        return await self._send(self._calls.sessions(job_id, limit))

    async def session(self, session_id: str) -> Facts:
        """Return a session with its trajectory."""
        return await self._send(self._calls.session(session_id))

    async def steps(self, session_id: str) -> list[Facts]:
        """Return a session's model calls, without their messages."""
        return await self._send(self._calls.steps(session_id))

    async def rewards(self, session_id: str) -> list[Facts]:
        """Return a session's scores."""
        return await self._send(self._calls.rewards(session_id))

    async def metrics(self, run_id: str, after_step: int = -1) -> list[Facts]:
        """Return the metrics of a training run's steps."""
        return await self._send(self._calls.metrics(run_id, after_step))

    async def weights(self, run_id: str) -> list[Facts]:
        """Return the weight versions that a run published."""
        return await self._send(self._calls.weights(run_id))

    async def rollouts(self, run_id: str) -> list[Facts]:
        """Return a run's groups by what became of them."""
        return await self._send(self._calls.rollouts(run_id))

    async def time_spent(self, run_id: str) -> Facts:
        """Return where a job's time went."""
        return await self._send(self._calls.time_spent(run_id))

    async def routes(self, gateway: str) -> list[str]:
        """Return the names of a gateway's model routes."""
        return await self._send(self._calls.routes(gateway))

    async def put_route(self, gateway: str, name: str, route: Facts, token_key: str) -> None:
        """Add a model route to a running gateway."""
        await self._send(self._calls.put_route(gateway, name, route, token_key))

    async def _send(self, call: Call[A]) -> A:
        try:
            return call.answer(await self._http.request(call.method, call.url, json=call.body, headers=call.headers))
        except httpx.HTTPError as error:
            raise call.unanswered(error) from error
