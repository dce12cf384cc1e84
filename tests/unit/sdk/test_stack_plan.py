from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from safactory.contracts.errors import ConfigError
from safactory.sdk.stack_plan import SERVICES, Policy, StackPlan, plan_stack


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def variables(plan: StackPlan) -> dict[str, dict[str, str]]:
    return {process.name: process.env for process in plan.processes}


def test_a_stack_has_a_broker_and_the_five_services(tmp_path: Path) -> None:
    plan = plan_stack(tmp_path / "home")
    assert [process.name for process in plan.processes] == ["broker", *SERVICES]
    assert set(plan.urls) == set(SERVICES)
    assert plan.routes == [] and plan.weights_addresses == []


@pytest.mark.parametrize(("train", "last"), [(False, ["inference"]), (True, ["inference", "trainer"])])
def test_a_policy_adds_its_model_server_and_trainer_and_route(tmp_path: Path, train: bool, last: list[str]) -> None:
    plan = plan_stack(tmp_path / "home", policy=Policy(model_dir=tmp_path, train=train))
    assert [process.name for process in plan.processes][6:] == last
    assert plan.routes == ["default"]


def test_no_service_sees_the_callers_other_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("GATEWAY_BODY_BYTES_MAX", "1024")
    found = variables(plan_stack(tmp_path / "home"))
    assert not any("secret" in value for env in found.values() for value in env.values())
    holders = [name for name, env in found.items() if "GATEWAY_BODY_BYTES_MAX" in env]
    assert holders == ["gateway"], "a service's settings are its own"


def test_two_stacks_share_no_port_and_no_key(tmp_path: Path) -> None:
    one, two = plan_stack(tmp_path / "one"), plan_stack(tmp_path / "two")
    assert not {process.port for process in one.processes} & {process.port for process in two.processes}
    assert one.token_key != two.token_key and len(one.token_key) >= 32


def test_a_port_can_be_fixed_by_the_environment_or_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_PORT", "29871")
    (tmp_path / ".env").write_text("SCHEDULER_PORT=29872\nGATEWAY_PORT=29873\n")
    urls = plan_stack(tmp_path / "home").urls
    assert (urls["gateway"], urls["scheduler"]) == ("http://127.0.0.1:29871", "http://127.0.0.1:29872")


def test_a_fixed_port_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("GATEWAY_PORT", str(port))
        with pytest.raises(ConfigError, match=f"port {port} is taken by"):
            plan_stack(tmp_path / "home")


def test_the_callers_own_routes_stand_beside_the_policys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "routes.yaml"
    own.write_text("llm_routes:\n  qwen: {base_url: http://127.0.0.1:8000/v1, api_key: sk-1}\n")
    monkeypatch.setenv("GATEWAY_CONFIG", str(own))
    plan = plan_stack(tmp_path / "home", policy=Policy(model_dir=tmp_path))
    assert sorted(plan.routes) == ["default", "qwen"]
    written = tmp_path / "home" / "gateway.yaml"
    assert yaml.safe_load(written.read_text())["llm_routes"]["qwen"]["api_key"] == "sk-1"
    assert written.stat().st_mode & 0o077 == 0, "routes hold keys"


@pytest.mark.parametrize("text", [None, "llm_routes: [", "routes: {}"])
def test_routes_that_cannot_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    own = tmp_path / "routes.yaml"
    if text:
        own.write_text(text)
    monkeypatch.setenv("GATEWAY_CONFIG", str(own))
    with pytest.raises(ConfigError, match="GATEWAY_CONFIG"):
        plan_stack(tmp_path / "home")
