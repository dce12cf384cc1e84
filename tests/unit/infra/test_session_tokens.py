"""Session tokens: only ours, only in time, and only as they were signed."""

from __future__ import annotations

import base64
import json
import time

import jwt
import pytest
from pydantic import SecretStr

from safactory.contracts.errors import ConfigError
from safactory.infra.session_tokens import SessionClaims, TokenRefused, TokenSettings, sign, verify

KEY = "k" * 32


def claims(**changes: object) -> SessionClaims:
    fields: dict[str, object] = {
        "session_id": "s", "attempt": 2, "job_id": "j", "group_id": "g", "environment": "e", "route": "r",
        "max_steps": 7,
    }  # fmt: skip
    return SessionClaims.model_validate(fields | changes)


def test_what_was_signed_is_what_is_read() -> None:
    made = claims()
    assert verify(sign(made, KEY), KEY) == made


def test_a_token_of_another_factory_is_refused() -> None:
    with pytest.raises(TokenRefused, match="not valid"):
        verify(sign(claims(), "x" * 32), KEY)


def test_an_expired_token_is_refused() -> None:
    with pytest.raises(TokenRefused, match="has expired"):
        verify(sign(claims(exp=int(time.time()) - 1), KEY), KEY)


def test_a_token_lasts_for_a_day_by_default() -> None:
    assert claims().exp - time.time() == pytest.approx(24 * 3600, abs=5)


def test_a_runner_cannot_give_itself_a_larger_budget() -> None:
    head, body, signature = sign(claims(max_steps=1), KEY).split(".")
    fields = json.loads(base64.urlsafe_b64decode(body + "==")) | {"max_steps": -1}
    forged = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
    with pytest.raises(TokenRefused):
        verify(f"{head}.{forged}.{signature}", KEY)


def test_a_token_without_a_signature_is_refused() -> None:
    with pytest.raises(TokenRefused):
        verify(jwt.encode(claims().model_dump(), "", algorithm="none"), KEY)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "sk-something", "…"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        verify(token, KEY)


def test_a_token_of_ours_with_other_claims_is_refused() -> None:
    with pytest.raises(TokenRefused, match="start request"):
        verify(jwt.encode({"sub": "me", "exp": int(time.time()) + 10}, KEY, algorithm="HS256"), KEY)


@pytest.mark.parametrize("key", ["", "short", "k" * 31])
def test_a_short_key_is_refused_with_the_way_to_make_one(key: str) -> None:
    with pytest.raises(ConfigError, match=r"TOKEN_KEY: needs at least 32 characters.*openssl"):
        TokenSettings(key=SecretStr(key)).secret()


def test_the_key_is_never_shown() -> None:
    settings = TokenSettings(key=SecretStr(KEY))
    assert KEY not in repr(settings)
    assert settings.secret() == KEY
