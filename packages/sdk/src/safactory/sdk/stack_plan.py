"""`plan_stack`: which processes a local stack has, on which ports, with which settings. Nothing is started here."""

from __future__ import annotations

import os
import secrets
import sys
import uuid
from pathlib import Path

import yaml
from dotenv import dotenv_values
from pydantic import BaseModel

from safactory.contracts.errors import ConfigError
from safactory.infra.embedded_broker import broker_command
from safactory.sdk.ports import claim, free_port

SERVICES = ("gateway", "scheduler", "runtime-worker", "evaluator", "dataelf")
"""Those that every stack has, beside the broker."""
POLICY_SERVICES = ("inference", "trainer")
"""Those of a stack that trains."""

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NEWCOMER_MARK")
"""What a service gets of the caller's environment, beside its own variables: keys of other things stay out."""


class Policy(BaseModel):
    """The model that a stack serves and trains."""

    model_dir: Path
    name: str = "policy"
    train: bool = True


class Process(BaseModel):
    """One process of a stack."""

    name: str
    command: list[str]
    env: dict[str, str]
    ready_url: str = ""
    """Empty for the broker, whose port is tried."""
    port: int


class StackPlan(BaseModel):
    """All of a local stack."""

    home: Path
    """Holds the archive, objects, logs and write-ahead files."""
    token_key: str
    processes: list[Process]
    urls: dict[str, str]
    """HTTP roots by service."""
    bus_servers: str
    weights_addresses: list[str]
    routes: list[str]


class _Ports:
    """Ports by variable: `GATEWAY_PORT=8080` in the environment or `.env` fixes one, all others are free ones."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._taken: set[int] = set()

    def of(self, variable: str) -> int:
        wanted = self._environment.get(variable, "")
        return claim(int(wanted), variable) if wanted.isdigit() and int(wanted) else free_port(self._taken)


def plan_stack(
    home: Path, *, policy: Policy | None = None, overrides: dict[str, str] | None = None, slots: int | None = None
) -> StackPlan:
    """Lay out a stack in a folder.

    Raises:
        ConfigError: a port that was asked for is taken, or GATEWAY_CONFIG cannot be read.
    """
    home = home.absolute()
    dotenv = {name: value for name, value in dotenv_values(".env").items() if value is not None}
    environment = {**dotenv, **os.environ, **(overrides or {})}
    ports = _Ports(environment)
    broker = 0 if environment.get("BUS_SERVERS") else ports.of("BROKER_PORT")
    http = {name: ports.of(f"{_variable(name)}_PORT") for name in (*SERVICES, *POLICY_SERVICES)}
    grpc = {name: ports.of(f"{_variable(name)}_GRPC_PORT") for name in ("gateway", "scheduler", "inference")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in http.items()}
    given = _given_routes(environment.get("GATEWAY_CONFIG", ""))
    routes = _write_routes(home, given, (urls["inference"], grpc["inference"]), policy)
    shared = _shared_variables(home, broker, environment)
    own = _own_variables(home, grpc, policy)
    own["runtime-worker"] |= {"RUNTIME_WORKER_SLOTS": str(slots)} if slots else {}
    names = [*SERVICES, *(["inference"] if policy else []), *(["trainer"] if policy and policy.train else [])]
    services = [
        Process(
            name=name,
            command=[sys.executable, "-m", f"safactory.{name.replace('-', '_')}"],
            env=_variables_of(name, environment) | shared | own[name] | {f"{_variable(name)}_PORT": str(http[name])},
            ready_url=f"{urls[name]}/readyz",
            port=http[name],
        )
        for name in names
    ]
    services[SERVICES.index("scheduler")].env["SCHEDULER_GATEWAY_URL"] = urls["gateway"]
    return StackPlan(
        home=home,
        token_key=shared["TOKEN_KEY"],
        processes=[*([_broker(broker)] if broker else []), *services],
        urls={name: urls[name] for name in names},
        bus_servers=shared["BUS_SERVERS"],
        weights_addresses=[f"127.0.0.1:{grpc['inference']}"] if policy else [],
        routes=routes,
    )


def _shared_variables(home: Path, broker: int, environment: dict[str, str]) -> dict[str, str]:
    """Return what every service is told; a broker, store or archive that is given takes the embedded one's place."""
    embedded = {"BUS_SERVERS": f"127.0.0.1:{broker}", "BUS_PARTITIONS_MAX": "1"} if broker else {}
    return {
        "BUS_SERVERS": environment.get("BUS_SERVERS", ""),
        "BUS_WAL_DIR": str(home / "wal"),
        "OBJECTS_URL": environment.get("OBJECTS_URL") or f"file://{home}/objects",
        "TOKEN_KEY": environment.get("TOKEN_KEY") or secrets.token_hex(32),
        "LOG_FORMAT": environment.get("LOG_FORMAT", "text"),
        "ARCHIVE_URL": environment.get("ARCHIVE_URL") or f"chdb://{home}/archive",
        "PYTHONUNBUFFERED": "1",
        # torch makes this folder in the system's temporary one otherwise, and leaves it there.
        "TORCHINDUCTOR_CACHE_DIR": str(home / "cache" / "torchinductor"),
        # One thread a process: two on two shared cores are slower than one.
        "OMP_NUM_THREADS": "1",
        **embedded,
    }


def _own_variables(home: Path, grpc: dict[str, int], policy: Policy | None) -> dict[str, dict[str, str]]:
    return {
        "gateway": {"GATEWAY_GRPC_PORT": str(grpc["gateway"]), "GATEWAY_CONFIG": str(home / "gateway.yaml")},
        "scheduler": {
            "SCHEDULER_GRPC_PORT": str(grpc["scheduler"]),
            "SCHEDULER_GATEWAY_GRPC": f"127.0.0.1:{grpc['gateway']}",
        },
        "runtime-worker": {
            "RUNTIME_WORKER_SCHEDULER": f"127.0.0.1:{grpc['scheduler']}",
            "RUNTIME_WORKER_FOLDER": str(home / "sessions"),
        },
        "evaluator": {"EVALUATOR_FOLDER": str(home / "scoring")},
        # It reads every topic: fewer fetches leave more of a small machine to the others.
        "dataelf": {"BUS_FETCH_WAIT_MS": "200"},
        "inference": {"INFERENCE_GRPC_PORT": str(grpc["inference"]), **_policy_env("INFERENCE", policy)},
        "trainer": {
            "TRAINER_ENGINES": f"127.0.0.1:{grpc['inference']}",
            "TRAINER_CHECKPOINT__DIR": str(home / "checkpoints"),
            "BUS_FETCH_WAIT_MS": "100",
            **_policy_env("TRAINER", policy),
        },
    }


def _broker(port: int) -> Process:
    command = broker_command(port, f"stack-{uuid.uuid4().hex[:12]}")
    return Process(name="broker", command=command, env={"PATH": os.environ.get("PATH", "")}, port=port)


def _variables_of(name: str, environment: dict[str, str]) -> dict[str, str]:
    """Return what a service may see of the environment: its own variables, and those of the shared parts."""
    prefixes = (f"{_variable(name)}_", "BUS_", "OBJECTS_", "ARCHIVE_", "LOG_", "NEWCOMER_")
    return {k: v for k, v in environment.items() if k in PASSED_ON or k.startswith(prefixes)}


def _policy_env(prefix: str, policy: Policy | None) -> dict[str, str]:
    if policy is None:
        return {}
    return {f"{prefix}_MODEL_DIR": str(policy.model_dir.absolute()), f"{prefix}_MODEL_NAME": policy.name}


def _given_routes(file: str) -> dict[str, object]:
    """Read the routes of a gateway configuration of the caller's own; the gateway checks each of them."""
    if not file:
        return {}
    try:
        document = yaml.safe_load(Path(file).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read: {error}", file=file, field="GATEWAY_CONFIG") from error
    routes = document.get("llm_routes") if isinstance(document, dict) else None
    if not isinstance(routes, dict):
        raise ConfigError("has no mapping `llm_routes`", file=file, field="GATEWAY_CONFIG")
    return routes


def _write_routes(home: Path, given: dict[str, object], inference: tuple[str, int], policy: Policy | None) -> list[str]:
    inference_url, weights_port = inference
    routes = dict(given)
    if policy is not None:
        upstream = {"base_url": f"{inference_url}/v1", "weights_address": f"127.0.0.1:{weights_port}"}
        routes["default"] = {"upstreams": [upstream], "model": policy.name, "capture_tokens": True}
    home.mkdir(parents=True, exist_ok=True)
    path = home / "gateway.yaml"
    path.touch(mode=0o600)  # routes hold keys
    path.write_text(yaml.safe_dump({"llm_routes": routes}))
    return list(routes)


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
