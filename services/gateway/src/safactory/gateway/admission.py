"""Admission: who may call, and whether there is room. A refused call costs nothing."""

from __future__ import annotations

import time

from safactory.gateway.errors import Refusal
from safactory.gateway.session_book import SessionState
from safactory.gateway.settings import GatewaySettings
from safactory.infra.health import counter, gauge
from safactory.infra.session_tokens import SessionClaims, TokenRefused, verify

ACCEPTED = counter("gateway_requests_accepted", "Calls that were admitted")
REJECTED = counter("gateway_requests_rejected", "Calls that were refused", "reason")
INFLIGHT = gauge("gateway_inflight_requests", "Calls in flight")

TOKENS_MAX = 10_000
"""Verified tokens that are remembered."""


class Admission:
    """The limits of one gateway."""

    def __init__(self, settings: GatewaySettings, secret: str) -> None:
        self._settings = settings
        self._secret = secret
        self._inflight = 0
        self._known: dict[str, SessionClaims] = {}
        self.draining = False
        self.starting = True
        """Until the session book is rebuilt, a step number would be a guess."""

    def claims(self, session_id: str, authorization: str, api_key: str) -> SessionClaims:
        """Return what the caller's token grants.

        Raises:
            Refusal: 401, the token is missing, not ours, expired, or for another session.
        """
        token = authorization.removeprefix("Bearer ").strip() or api_key
        if not token:
            raise Refusal(401, "invalid_session_token", "give the start request's session_token as the API key")
        try:
            claims = self._verified(token)
        except TokenRefused as error:
            raise Refusal(401, "invalid_session_token", str(error)) from error
        if claims.session_id != session_id:
            raise Refusal(401, "invalid_session_token", "the session token is for another session")
        return claims

    def _verified(self, token: str) -> SessionClaims:
        """Check a token's signature once: a session shows the same one with every call."""
        claims = self._known.get(token)
        if claims is None or claims.exp <= time.time():
            claims = verify(token, self._secret)
            if len(self._known) >= TOKENS_MAX:
                self._known.clear()
            self._known[token] = claims
        return claims

    def is_service(self, authorization: str) -> bool:
        """Tell whether the caller holds the factory's own key."""
        return authorization == f"Bearer {self._secret}"

    def enter(self, state: SessionState) -> None:
        """Count a call in.

        Raises:
            Refusal: 429 or 503, there is no room; or 409, the session is closed.
        """
        if self.draining or self.starting:
            what = "draining" if self.draining else "starting"
            raise Refusal(503, "admission_rejected", f"gateway is {what}")
        if state.closed:
            raise Refusal(409, "session_closed", f"session is closed: {state.close_reason or 'sealed'}")
        if self._inflight >= self._settings.max_inflight_requests:
            raise Refusal(503, "admission_rejected", "gateway inflight limit reached")
        if len(state.inflight) >= self._settings.per_session_max_inflight:
            limit = self._settings.per_session_max_inflight
            raise Refusal(429, "admission_rejected", f"session has {limit} calls in flight already")
        self._inflight += 1
        ACCEPTED.inc()
        INFLIGHT.set(self._inflight)

    def leave(self) -> None:
        """Count a call out."""
        self._inflight -= 1
        INFLIGHT.set(self._inflight)
