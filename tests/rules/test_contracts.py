"""Every event has a topic, a builder and a golden file, and the golden file is what it has always been.

`python tests/rules/test_contracts.py` writes the files that are missing; one that exists is changed by hand, because
a changed golden file is a changed contract.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest

import safactory.contracts
from safactory.contracts.dead_letters import DeadLetter
from safactory.contracts.event import Event
from safactory.contracts.topics import EVENT_OF, TOPIC_OF, key_of
from safactory.testkit import builders

GOLDEN = Path(__file__).parent / "golden"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def build(kind: str) -> Event:
    event: Event = getattr(builders, f"a_{kind.replace('.', '_')}")(occurred_at=MOMENT)
    return event


def golden(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOLDEN / f"{kind}.json").read_text())
    return document


def wire(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def event_classes() -> list[type[Event]]:
    """All concrete events, wherever in the package they are."""
    for module in pkgutil.iter_modules(safactory.contracts.__path__, "safactory.contracts."):
        importlib.import_module(module.name)
    found, todo = [], [Event]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if "type" in vars(kind) and kind.__module__.startswith("safactory.contracts."):
            found.append(kind)
    return found


def test_every_event_class_has_a_topic() -> None:
    # A dead letter is only ever read: its value may be anything, so it is never published as an event.
    assert set(event_classes()) - {DeadLetter} == set(TOPIC_OF)


@pytest.mark.parametrize("event_class", TOPIC_OF, ids=lambda kind: kind.__name__)
def test_class_and_type_have_one_name(event_class: type[Event]) -> None:
    words = re.findall("[A-Z][a-z]+", event_class.__name__)
    assert event_class.type == f"{words[0]}.{'_'.join(words[1:])}".lower()


def test_no_two_events_share_a_type() -> None:
    assert len(EVENT_OF) == len(TOPIC_OF)


@pytest.mark.parametrize("event_class", TOPIC_OF, ids=lambda kind: kind.type)
def test_identity_and_key_are_fields_of_the_event(event_class: type[Event]) -> None:
    assert {*event_class.identified_by, TOPIC_OF[event_class].key} <= set(event_class.model_fields)


def test_every_event_has_a_golden_file_and_no_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(EVENT_OF)


@pytest.mark.parametrize("kind", EVENT_OF)
def test_a_golden_value_is_the_builders_event(kind: str) -> None:
    assert EVENT_OF[kind].from_json(wire(golden(kind)["value"]).encode()) == build(kind)


@pytest.mark.parametrize("kind", EVENT_OF)
def test_an_event_is_written_as_its_golden_value(kind: str) -> None:
    assert build(kind).to_json().decode() == wire(golden(kind)["value"])


@pytest.mark.parametrize("kind", EVENT_OF)
def test_identity_topic_and_key_are_what_they_were(kind: str) -> None:
    event, kept = build(kind), golden(kind)
    assert (event.event_id, TOPIC_OF[type(event)].name, key_of(event)) == (kept["id"], kept["topic"], kept["key"])


@pytest.mark.parametrize("kind", EVENT_OF)
def test_the_same_fact_at_another_time_has_the_same_identity(kind: str) -> None:
    event = build(kind)
    assert event.model_copy(update={"occurred_at": datetime.now(UTC)}).event_id == event.event_id


@pytest.mark.parametrize("kind", EVENT_OF)
def test_a_newer_writers_field_is_ignored_on_reading(kind: str) -> None:
    value = wire({**golden(kind)["value"], "field_of_tomorrow": {"deep": 1}})
    assert EVENT_OF[kind].from_json(value.encode()) == build(kind)


@pytest.mark.parametrize("kind", EVENT_OF)
def test_an_unknown_field_is_refused_on_construction(kind: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="field_of_tomorrow"):
        EVENT_OF[kind].model_validate({**dict(build(kind)), "field_of_tomorrow": 1})


def test_a_newer_field_deep_inside_is_ignored_too() -> None:
    value = golden("job.submitted")["value"]
    value["spec"]["environments"][0]["launch"]["field_of_tomorrow"] = 1
    assert EVENT_OF["job.submitted"].from_json(wire(value).encode()) == build("job.submitted")


def test_what_a_runner_said_beyond_the_contract_survives_the_bus() -> None:
    value = golden("session.finished")["value"]
    value["outcome"]["result"]["turns_in_the_maze"] = 7
    event = EVENT_OF["session.finished"].from_json(wire(value).encode())
    assert json.loads(event.to_json()) == value


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        build("session.ended").reason = "failed"  # type: ignore[attr-defined]


def write_missing() -> None:
    """Write the golden files that are not there."""
    GOLDEN.mkdir(exist_ok=True)
    for kind, event_class in EVENT_OF.items():
        event, path = build(kind), GOLDEN / f"{kind}.json"
        document = {
            "type": kind,
            "id": event.event_id,
            "topic": TOPIC_OF[event_class].name,
            "key": key_of(event),
            "value": json.loads(event.to_json()),
        }
        if not path.exists():
            path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_missing()
