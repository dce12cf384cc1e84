"""Session tokens: what a runner shows to the gateway, signed by the scheduler.

A token names one attempt of one session and carries its budget, so a runner can neither invent a session nor give
itself a fresh budget, and the gateway needs to be told of no session beforehand.
"""

from __future__ import annotations

import time

import jwt
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from safactory.contracts.errors import ConfigError, SafactoryError
from safactory.contracts.event import Model

ALGORITHM = "HS256"
KEY_CHARS_MIN = 32


class TokenSettings(BaseSettings):
    """The keys that the factory's own services share."""

    model_config = SettingsConfigDict(env_prefix="TOKEN_", extra="ignore")

    key: SecretStr = SecretStr("")
    """Signs session tokens and opens the administrative routes; at least 32 characters."""

    def secret(self) -> str:
        """Return the key.

        Raises:
            ConfigError: it is missing or too short to sign with.
        """
        secret = self.key.get_secret_value()
        if len(secret) < KEY_CHARS_MIN:
            raise ConfigError(
                f"needs at least {KEY_CHARS_MIN} characters, e.g. `openssl rand -hex 32`", field="TOKEN_KEY"
            )
        return secret


class TokenRefused(SafactoryError):
    """A token is missing, not ours, expired, or for another session."""


class SessionClaims(Model):
    """What a session token grants."""

    session_id: str
    attempt: int
    job_id: str
    group_id: str
    environment: str
    route: str
    """The only route that the session may call."""
    max_steps: int = -1
    """Model calls of this attempt; -1 is unlimited."""
    exp: int = Field(default_factory=lambda: int(time.time()) + 24 * 3600)
    """When the token expires, in Unix seconds."""


def sign(claims: SessionClaims, secret: str) -> str:
    """Return a token for these claims."""
    return jwt.encode(claims.model_dump(), secret, algorithm=ALGORITHM)


def verify(token: str, secret: str) -> SessionClaims:
    """Return the claims of a token.

    Raises:
        TokenRefused: it is not signed by us, or has expired.
    """
    try:
        return SessionClaims.model_validate(jwt.decode(token, secret, algorithms=[ALGORITHM]))
    except jwt.ExpiredSignatureError as error:
        raise TokenRefused("the session token has expired") from error
    except (jwt.InvalidTokenError, ValidationError) as error:
        raise TokenRefused("the session token is not valid: use the one in the start request") from error
