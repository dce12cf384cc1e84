"""Settings of the gateway, and its routes to model servers."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from safactory.contracts.errors import ConfigError
from safactory.infra.settings import ServiceSettings


class Upstream(BaseModel):
    """One model server of a route."""

    model_config = ConfigDict(extra="forbid")

    base_url: str
    """Up to and including `/v1`."""
    weights_address: str = ""
    """gRPC address of its weights, so that a failed push takes it out of the route; empty for a foreign server."""


class Route(BaseModel):
    """One model that agents can name."""

    model_config = ConfigDict(extra="forbid")

    base_url: str = ""
    """Short for one upstream."""
    upstreams: list[Upstream] = Field(default_factory=list)
    """Sessions are spread over these, each staying with one."""
    model: str
    """The name that the model servers know it by."""
    api_key: SecretStr = SecretStr("")
    max_concurrency: int = Field(default=256, ge=1)
    capture_tokens: bool = False
    """Ask for token ids, logprobs and weight versions: for engines that know these fields (torch, vLLM)."""

    def all_upstreams(self) -> list[Upstream]:
        """Return the upstreams, also of a route in short form."""
        return self.upstreams or [Upstream(base_url=self.base_url)]


class GatewaySettings(ServiceSettings):
    """GATEWAY_*."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_", extra="ignore")

    grpc_port: int = 0
    """Serves `Sessions` to the scheduler."""
    config: Path | None = None
    """A YAML file with `llm_routes: {name: {base_url, model, …}}`."""
    base_session_path: str = "/v1/sessions"
    allow_sessionless: bool = False
    """Whether `/v1/chat/completions` without a session is served; such calls are recorded too."""
    max_inflight_requests: int = 2048
    per_session_max_inflight: int = 8
    connect_timeout_s: float = 10.0
    silence_timeout_s: float = 300.0
    """The longest that a model server may send nothing."""
    body_bytes_max: int = 32 * 1024 * 1024
    session_ttl_s: float = 24 * 3600.0
    """How long a sealed session is remembered."""


def load_routes(path: Path | None) -> dict[str, Route]:
    """Read `llm_routes`.

    Raises:
        ConfigError: the file is not there, not YAML, or has a field that is unknown or wrong.
    """
    if path is None:
        return {}
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read: {error}", file=str(path), field="GATEWAY_CONFIG") from error
    if not isinstance(document, dict) or not isinstance(document.get("llm_routes"), dict):
        raise ConfigError("has no mapping `llm_routes`", file=str(path))
    return {name: parse_route(name, fields, str(path)) for name, fields in document["llm_routes"].items()}


def parse_route(name: str, fields: object, file: str = "") -> Route:
    """Read one route.

    Raises:
        ConfigError: a field is unknown or wrong, or no upstream is given.
    """
    try:
        route = Route.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in ("llm_routes", name, *first["loc"]))
        raise ConfigError(first["msg"], file=file, field=field) from error
    if not route.upstreams and not route.base_url:
        raise ConfigError("give base_url, or upstreams", file=file, field=f"llm_routes.{name}")
    return route
