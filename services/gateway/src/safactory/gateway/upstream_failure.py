"""What went wrong with a model server, in words that tell a person what to change."""

from __future__ import annotations

import json

import aiohttp

from safactory.gateway.settings import GatewaySettings

TEXT_CHARS_MAX = 500


def describe_refusal(base_url: str, model: str, http_status: int, body: bytes) -> str:
    """Describe an answer with an error status."""
    said = _message(body)
    advice = {
        401: "it refused the API key: check the route's api_key (--api-key-env)",
        403: "it refused the API key: check the route's api_key (--api-key-env)",
        404: f"it does not know the model {model!r}, or the URL has no /v1: check --model and --base-url",
        429: "it is over its rate limit: lower the concurrency or wait",
    }.get(http_status, "it failed: see its own log" if http_status >= 500 else "it refused the request")
    return f"model server {base_url} answered {http_status}; {advice}" + (f" ({said})" if said else "")


def describe_unreachable(base_url: str, error: aiohttp.ClientError) -> str:
    """Describe a connection that failed or broke before an answer."""
    return f"model server {base_url} cannot be reached: {error}; check --base-url, and that the server runs"


def describe_silence(base_url: str, settings: GatewaySettings) -> str:
    """Describe a server that sent nothing for too long."""
    return (
        f"model server {base_url} sent nothing for {settings.silence_timeout_s:g} s: it hangs or is overloaded; "
        "raise GATEWAY_SILENCE_TIMEOUT_S if answers may take longer"
    )


def _message(body: bytes) -> str:
    try:
        parsed = json.loads(body)
    except ValueError:
        return body[:TEXT_CHARS_MAX].decode(errors="replace").strip()
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:TEXT_CHARS_MAX]
