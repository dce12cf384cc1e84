"""The factory's client: jobs at the scheduler, questions to dataelf, weights at the model servers.

`Safactory` is synchronous, `AsyncSafactory` the same with `await`. Answers are the services' own JSON.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx
from pydantic import JsonValue
from safactory.contracts.errors import ConfigError, ServiceError
from safactory.contracts.jobs import JobRequest

Facts = dict[str, JsonValue]

TIMEOUT_S = 30.0


def _answer(response: httpx.Response) -> JsonValue:
    if response.is_success:
        value: JsonValue = response.json()
        return value
    try:
        body = response.json()
    except ValueError:
        body = {}
    error = body.get("error", body) if isinstance(body, dict) else {}
    message = str(error.get("message") or error.get("detail") or response.text)
    if response.status_code in (400, 422):
        raise ConfigError(message)
    raise ServiceError(f"{response.request.method} {response.request.url} answered {response.status_code}: {message}")


class _Paths:
    """Where things are."""

    def __init__(self, scheduler: str, dataelf: str) -> None:
        self._scheduler = scheduler.rstrip("/")
        self._dataelf = dataelf.rstrip("/")

    def _job(self, job_id: str = "", action: str = "") -> str:
        return "/".join(part for part in (f"{self._scheduler}/v1/jobs", job_id, action) if part)

    def _archive(self, *parts: str) -> str:
        return "/".join((f"{self._dataelf}/v1", *parts))


def _facts(value: JsonValue) -> Facts:
    if not isinstance(value, dict):
        raise ServiceError(f"expected an object, got {type(value).__name__}")
    return value


def _list(value: JsonValue) -> list[Facts]:
    if not isinstance(value, list):
        raise ServiceError(f"expected a list, got {type(value).__name__}")
    return [_facts(item) for item in value]


class Safactory(_Paths):
    """A synchronous client."""

    def __init__(self, scheduler: str, dataelf: str) -> None:
        super().__init__(scheduler, dataelf)
        self._http = httpx.Client(timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def submit(self, request: JobRequest) -> Facts:
        """Submit a job and return its status.

        Raises:
            ConfigError: it was refused; the message names file and line.
            ServiceError: the scheduler did not answer.
        """
        return _facts(self._call("POST", self._job(), request.model_dump(mode="json")))

    def jobs(self) -> list[Facts]:
        """Return the status of every job that the scheduler knows."""
        return _list(self._call("GET", self._job()))

    def job(self, job_id: str) -> Facts:
        """Return a job's status."""
        return _facts(self._call("GET", self._job(job_id)))

    def cancel(self, job_id: str, reason: str) -> Facts:
        """Stop a job."""
        return _facts(self._call("POST", self._job(job_id, "cancel"), {"reason": reason}))

    def resume(self, job_id: str) -> Facts:
        """Run again what a job did not score, also after its stack was gone: the archive gives its events back."""
        events: JsonValue = [dict(event) for event in _list(self._call("GET", self._archive("jobs", job_id, "events")))]
        return _facts(self._call("POST", self._job(job_id, "resume"), {"events": events}))

    def results(self, job_id: str) -> Facts:
        """Return a job's result table."""
        return _facts(self._call("GET", self._archive("jobs", job_id, "results")))

    def audit(self, job_id: str) -> Facts:
        """Return whether the archive has all of a job."""
        return _facts(self._call("GET", self._archive("jobs", job_id, "audit")))

    def archived_jobs(self) -> list[Facts]:
        """Return every job in the archive, the newest first."""
        return _list(self._call("GET", self._archive("jobs")))

    def sessions(self, job_id: str, limit: int = 100) -> list[Facts]:
        """Return a job's ended sessions."""
        return _list(self._call("GET", self._archive("jobs", job_id, f"sessions?limit={limit}")))

    def session(self, session_id: str) -> Facts:
        """Return a session with its trajectory."""
        return _facts(self._call("GET", self._archive("sessions", session_id)))

    def metrics(self, run_id: str, after_step: int = -1) -> list[Facts]:
        """Return a training run's metrics after a step."""
        return _list(self._call("GET", self._archive("runs", run_id, f"metrics?after_step={after_step}")))

    def weights(self, run_id: str) -> list[Facts]:
        """Return the weight versions that a run published."""
        return _list(self._call("GET", self._archive("runs", run_id, "weights")))

    def rollouts(self, run_id: str) -> list[Facts]:
        """Return a run's groups by what became of them."""
        return _list(self._call("GET", self._archive("runs", run_id, "rollouts")))

    def time_spent(self, run_id: str) -> Facts:
        """Return where a job's time went."""
        return _facts(self._call("GET", self._archive("runs", run_id, "time")))

    def put_route(self, gateway: str, name: str, route: Facts, token_key: str) -> None:
        """Add a model route to a running gateway."""
        headers = {"Authorization": f"Bearer {token_key}"}
        _answer(self._http.put(f"{gateway}/v1/routes/{name}", json=route, headers=headers))

    def _call(self, method: str, url: str, body: JsonValue = None) -> JsonValue:
        try:
            return _answer(self._http.request(method, url, json=body))
        except httpx.HTTPError as error:
            raise ServiceError(f"{method} {url}: {error!r}") from error


class AsyncSafactory(_Paths):
    """An asynchronous client of the same calls."""

    def __init__(self, scheduler: str, dataelf: str) -> None:
        super().__init__(scheduler, dataelf)
        self._http = httpx.AsyncClient(timeout=TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def submit(self, request: JobRequest) -> Facts:
        """Submit a job and return its status."""
        return _facts(await self._call("POST", self._job(), request.model_dump(mode="json")))

    async def job(self, job_id: str) -> Facts:
        """Return a job's status."""
        return _facts(await self._call("GET", self._job(job_id)))

    async def cancel(self, job_id: str, reason: str) -> Facts:
        """Stop a job."""
        return _facts(await self._call("POST", self._job(job_id, "cancel"), {"reason": reason}))

    async def results(self, job_id: str) -> Facts:
        """Return a job's result table."""
        return _facts(await self._call("GET", self._archive("jobs", job_id, "results")))

    async def session(self, session_id: str) -> Facts:
        """Return a session with its trajectory."""
        return _facts(await self._call("GET", self._archive("sessions", session_id)))

    async def _call(self, method: str, url: str, body: JsonValue = None) -> JsonValue:
        try:
            return _answer(await self._http.request(method, url, json=body))
        except httpx.HTTPError as error:
            raise ServiceError(f"{method} {url}: {error!r}") from error
