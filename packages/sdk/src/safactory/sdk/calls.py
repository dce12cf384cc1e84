"""`Calls`: every question that the client can ask, as a request and the reading of its answer.

The synchronous and the asynchronous client send the same calls, so neither can know one that the other does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import httpx
from pydantic import JsonValue

from safactory.contracts.errors import ConfigError, ServiceError
from safactory.contracts.jobs import JobRequest

Facts = dict[str, JsonValue]
A = TypeVar("A")

TIMEOUT_S = 30.0
REFUSED = (400, 401, 409, 422)
"""The request is wrong, and stays wrong: a person must mend it."""


class NotFoundError(ConfigError):
    """The service knows no job or session of this id; an archive may know it a moment later."""


@dataclass(frozen=True)
class Call(Generic[A]):
    """One request."""

    method: str
    url: str
    read: Callable[[JsonValue], A]
    body: JsonValue = None
    headers: dict[str, str] = field(default_factory=dict)

    def answer(self, response: httpx.Response) -> A:
        """Read the answer.

        Raises:
            NotFoundError: there is no such job or session.
            ConfigError: the request was refused; the message says why.
            ServiceError: the service failed.
        """
        if response.is_success:
            return self.read(response.json())
        message = _message(response)
        if response.status_code == httpx.codes.NOT_FOUND:
            raise NotFoundError(message)
        if response.status_code in REFUSED:
            raise ConfigError(message)
        raise ServiceError(f"{self.method} {self.url} answered {response.status_code}: {message}")

    def unanswered(self, error: httpx.HTTPError) -> ServiceError:
        """Return what to raise when no answer came."""
        return ServiceError(f"{self.method} {self.url}: {error!r}: does the stack run? see `safactory status`")


class Calls:
    """Calls to one scheduler and one dataelf."""

    def __init__(self, scheduler: str, dataelf: str) -> None:
        self._scheduler = scheduler.rstrip("/")
        self._dataelf = dataelf.rstrip("/")

    def submit(self, request: JobRequest) -> Call[Facts]:
        """Submit a job."""
        return Call("POST", self._job(), as_facts, request.model_dump(mode="json"))

    def jobs(self) -> Call[list[Facts]]:
        """List the scheduler's jobs."""
        return Call("GET", self._job(), as_list)

    def job(self, job_id: str) -> Call[Facts]:
        """Look at a job."""
        return Call("GET", self._job(job_id), as_facts)

    def cancel(self, job_id: str, reason: str) -> Call[Facts]:
        """Stop a job."""
        return Call("POST", self._job(job_id, "cancel"), as_facts, {"reason": reason})

    def archived_events(self, job_id: str) -> Call[list[Facts]]:
        """Get what a scheduler needs to go on with a job."""
        return self._list("jobs", job_id, "events")

    def resume(self, job_id: str, events: list[Facts]) -> Call[Facts]:
        """Go on with a job."""
        given: JsonValue = [dict(event) for event in events]
        return Call("POST", self._job(job_id, "resume"), as_facts, {"events": given})

    def job_spec(self, job_id: str) -> Call[Facts]:
        """Get a job as it was accepted."""
        return self._facts("jobs", job_id)

    def results(self, job_id: str) -> Call[Facts]:
        """Get a job's result table."""
        return self._facts("jobs", job_id, "results")

    def audit(self, job_id: str) -> Call[Facts]:
        """Check a job."""
        return self._facts("jobs", job_id, "audit")

    def archived_jobs(self) -> Call[list[Facts]]:
        """List the archive's jobs."""
        return self._list("jobs")

    def sessions(self, job_id: str, limit: int) -> Call[list[Facts]]:
        """List a job's ended sessions."""
        return self._list("jobs", job_id, f"sessions?limit={limit}")

    def session(self, session_id: str) -> Call[Facts]:
        """Look at a session."""
        return self._facts("sessions", session_id)

    def steps(self, session_id: str) -> Call[list[Facts]]:
        """List a session's model calls."""
        return self._list("sessions", session_id, "steps")

    def rewards(self, session_id: str) -> Call[list[Facts]]:
        """List a session's scores."""
        return self._list("sessions", session_id, "rewards")

    def metrics(self, run_id: str, after_step: int) -> Call[list[Facts]]:
        """List a run's metrics."""
        return self._list("runs", run_id, f"metrics?after_step={after_step}")

    def weights(self, run_id: str) -> Call[list[Facts]]:
        """List a run's weight versions."""
        return self._list("runs", run_id, "weights")

    def rollouts(self, run_id: str) -> Call[list[Facts]]:
        """List a run's groups."""
        return self._list("runs", run_id, "rollouts")

    def time_spent(self, run_id: str) -> Call[Facts]:
        """Get where a job's time went."""
        return self._facts("runs", run_id, "time")

    def routes(self, gateway: str) -> Call[list[str]]:
        """List a gateway's model routes."""
        return Call("GET", f"{gateway}/v1/models", _route_names)

    def put_route(self, gateway: str, name: str, route: Facts, token_key: str) -> Call[None]:
        """Add a model route to a gateway."""
        headers = {"Authorization": f"Bearer {token_key}"}
        return Call("PUT", f"{gateway}/v1/routes/{name}", lambda _: None, route, headers)

    def _job(self, job_id: str = "", action: str = "") -> str:
        return "/".join(part for part in (f"{self._scheduler}/v1/jobs", job_id, action) if part)

    def _facts(self, *parts: str) -> Call[Facts]:
        return Call("GET", "/".join((f"{self._dataelf}/v1", *parts)), as_facts)

    def _list(self, *parts: str) -> Call[list[Facts]]:
        return Call("GET", "/".join((f"{self._dataelf}/v1", *parts)), as_list)


def as_facts(value: JsonValue) -> Facts:
    """Read an object."""
    if not isinstance(value, dict):
        raise ServiceError(f"expected an object, got {type(value).__name__}")
    return value


def as_list(value: JsonValue) -> list[Facts]:
    """Read a list of objects."""
    if not isinstance(value, list):
        raise ServiceError(f"expected a list, got {type(value).__name__}")
    return [as_facts(item) for item in value]


def _route_names(value: JsonValue) -> list[str]:
    return [str(entry["id"]) for entry in as_list(as_facts(value)["data"])]


def _message(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return response.text
    error = body.get("error", body) if isinstance(body, dict) else {}
    return str(error.get("message") or error.get("detail") or response.text)
