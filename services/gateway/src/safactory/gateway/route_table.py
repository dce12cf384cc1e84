"""`RouteTable`: which model server serves a session's call.

A session stays with one upstream while that one is healthy, so that its prefix cache is of use. A replica that failed
a weight push is quarantined: it serves other weights than it should, so nothing is routed to it until a later push
commits there.
"""

from __future__ import annotations

import hashlib

from safactory.contracts.weights import WeightsPublished
from safactory.gateway.errors import Refusal
from safactory.gateway.settings import Route, Upstream
from safactory.infra.health import gauge

INFLIGHT = gauge("gateway_llm_route_inflight", "Calls in flight", "model")


class RouteTable:
    """The configured routes and what is known of their upstreams."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self._routes = dict(routes)
        self._quarantined: set[str] = set()
        self._inflight: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The names that agents can use as a model."""
        return sorted(self._routes)

    def put(self, name: str, route: Route) -> None:
        """Add or replace a route."""
        self._routes[name] = route

    def find(self, name: str) -> Route:
        """Return a route.

        Raises:
            Refusal: 404, there is none of this name.
        """
        route = self._routes.get(name)
        if route is None:
            raise Refusal(
                404, "model_not_found", f"no route {name!r}: the routes are {', '.join(self.names) or 'none'}"
            )
        return route

    def upstream_for(self, name: str, session_id: str) -> Upstream:
        """Return the upstream for a session's call.

        Raises:
            Refusal: 503, every upstream of the route is quarantined.
        """
        healthy = [
            upstream
            for upstream in self.find(name).all_upstreams()
            if upstream.weights_address not in self._quarantined
        ]
        if not healthy:
            raise Refusal(
                503, "llm_route_unavailable", f"every upstream of route {name!r} is quarantined after a failed push"
            )
        # Each session has its own order of preference, so only those of a lost upstream move.
        return max(healthy, key=lambda upstream: hashlib.sha256(f"{session_id} {upstream.base_url}".encode()).digest())

    def weights_published(self, event: WeightsPublished) -> None:
        """Take note of the replicas that a push failed on, and of those it succeeded on."""
        self._quarantined -= set(event.committed)
        self._quarantined |= set(event.quarantined)

    def enter(self, name: str) -> None:
        """Count a call in.

        Raises:
            Refusal: 503, the route is at its concurrency limit.
        """
        limit = self.find(name).max_concurrency
        if self._inflight.get(name, 0) >= limit:
            raise Refusal(503, "admission_rejected", f"route {name!r} has {limit} calls in flight, its max_concurrency")
        self._inflight[name] = self._inflight.get(name, 0) + 1
        INFLIGHT.labels(name).set(self._inflight[name])

    def leave(self, name: str) -> None:
        """Count a call out."""
        self._inflight[name] -= 1
        INFLIGHT.labels(name).set(self._inflight[name])
