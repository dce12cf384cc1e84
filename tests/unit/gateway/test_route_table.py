"""Which model server serves a call, and which must not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pydantic import JsonValue

from safactory.contracts.errors import ConfigError
from safactory.gateway.errors import Refusal
from safactory.gateway.route_table import RouteTable
from safactory.gateway.settings import Route, Upstream, load_routes, parse_route
from safactory.testkit.builders import a_weights_published

SESSIONS = [f"session-{number}" for number in range(300)]


@pytest.fixture
def table() -> RouteTable:
    upstreams = [Upstream(base_url=f"http://h{n}/v1", weights_address=f"h{n}:1") for n in range(3)]
    return RouteTable({
        "replicas": Route(upstreams=upstreams, model="m", max_concurrency=2),
        "foreign": Route(base_url="http://f/v1", model="m"),
    })


def served_by(table: RouteTable, route: str = "replicas") -> dict[str, str]:
    return {session: table.upstream_for(route, session).base_url for session in SESSIONS}


def test_sessions_are_spread_and_each_stays_where_it_is(table: RouteTable) -> None:
    first = served_by(table)
    assert served_by(table) == first
    counts = Counter(first.values())
    assert len(counts) == 3
    assert min(counts.values()) > 60


def test_a_replica_that_failed_a_push_serves_nobody_and_only_its_sessions_move(table: RouteTable) -> None:
    before = served_by(table)
    table.weights_published(a_weights_published(committed=["h0:1", "h2:1"], quarantined=["h1:1"]))
    after = served_by(table)
    assert set(after.values()) == {"http://h0/v1", "http://h2/v1"}
    assert [s for s in SESSIONS if before[s] != after[s]] == [s for s in SESSIONS if before[s] == "http://h1/v1"]


def test_a_replica_that_took_a_later_push_is_back_with_its_sessions(table: RouteTable) -> None:
    before = served_by(table)
    table.weights_published(a_weights_published(committed=["h0:1"], quarantined=["h1:1", "h2:1"]))
    table.weights_published(a_weights_published(committed=["h0:1", "h1:1"], quarantined=[]))
    assert set(served_by(table).values()) == {"http://h0/v1", "http://h1/v1"}, "h2 has not taken any push"
    table.weights_published(a_weights_published(committed=["h2:1"], quarantined=[]))
    assert served_by(table) == before


def test_a_route_without_a_healthy_replica_is_503_and_says_why(table: RouteTable) -> None:
    table.weights_published(a_weights_published(committed=[], quarantined=["h0:1", "h1:1", "h2:1"]))
    with pytest.raises(Refusal, match="quarantined after a failed push") as caught:
        table.upstream_for("replicas", "s")
    assert (caught.value.http_status, caught.value.kind) == (503, "llm_route_unavailable")


def test_a_foreign_server_has_no_weights_and_is_never_quarantined(table: RouteTable) -> None:
    table.weights_published(a_weights_published(committed=[], quarantined=["f:1"]))
    assert set(served_by(table, "foreign").values()) == {"http://f/v1"}


def test_an_unknown_route_is_404_and_names_those_there_are(table: RouteTable) -> None:
    with pytest.raises(Refusal, match="no route 'gpt': the routes are foreign, replicas") as caught:
        table.find("gpt")
    assert caught.value.http_status == 404
    with pytest.raises(Refusal, match="the routes are none"):
        RouteTable({}).find("gpt")


def test_a_route_takes_no_more_calls_than_its_limit_until_one_leaves(table: RouteTable) -> None:
    table.enter("replicas")
    table.enter("replicas")
    table.enter("foreign")
    with pytest.raises(Refusal, match="max_concurrency") as caught:
        table.enter("replicas")
    assert caught.value.http_status == 503
    table.leave("replicas")
    table.enter("replicas")


def test_a_route_can_be_added_and_replaced(table: RouteTable) -> None:
    table.put("new", Route(base_url="http://n/v1", model="m"))
    table.put("foreign", Route(base_url="http://g/v1", model="m"))
    assert table.names == ["foreign", "new", "replicas"]
    assert table.find("foreign").base_url == "http://g/v1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("llm_routes: [", "cannot be read"),
        ("routes: {}", "llm_routes"),
        ("llm_routes: 3", "llm_routes"),
        ("llm_routes: {a: {model: m}}", "give base_url, or upstreams"),
        ("llm_routes: {a: {base_url: x}}", r"llm_routes\.a\.model"),
        ("llm_routes: {a: {base_url: x, model: m, modle: y}}", r"llm_routes\.a\.modle"),
        ("llm_routes: {a: {base_url: x, model: m, max_concurrency: 0}}", r"llm_routes\.a\.max_concurrency"),
        ("llm_routes: {a: {model: m, upstreams: [{base_url: x, weight: 1}]}}", r"llm_routes\.a\.upstreams\.0\.weight"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_file_and_field(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_routes(path)
    assert caught.value.file == str(path)


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: GATEWAY_CONFIG: cannot be read"):
        load_routes(tmp_path / "none.yaml")
    assert load_routes(None) == {}


def test_the_key_of_a_route_is_not_shown() -> None:
    fields: dict[str, JsonValue] = {"base_url": "x", "model": "m", "api_key": "sk-secret"}
    route = parse_route("a", fields)
    assert "sk-secret" not in repr(route)
    assert route.api_key.get_secret_value() == "sk-secret"
