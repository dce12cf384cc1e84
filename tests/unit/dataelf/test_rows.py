"""Every event has its rows, and the rows fit the tables that the migrations make."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from safactory.contracts.dead_letters import DeadLetter
from safactory.contracts.endings import EndReason
from safactory.contracts.errors import PoisonError
from safactory.contracts.event import Event
from safactory.contracts.payload import Payload
from safactory.contracts.topics import EVENT_OF
from safactory.dataelf.house import MIGRATIONS
from safactory.dataelf.rows import Source, message_rows, payload_of, rows_of
from safactory.infra.archive import Archive
from safactory.infra.migrations import migrate
from safactory.infra.settings import ArchiveSettings
from safactory.testkit import builders as b

SOURCE = Source("tenant", "bus-1")
LETTER = DeadLetter(
    topic="safactory.step.v1",
    partition=-1,
    offset=-1,
    group="dataelf",
    key="k",
    kind="",
    error="e",
    attempts=1,
    value="v",
)
EVENTS: list[Event] = [*(getattr(b, f"a_{kind.replace('.', '_')}")() for kind in EVENT_OF), LETTER]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_every_event_has_rows_under_its_own_identity(event: Event) -> None:
    found = rows_of(event, SOURCE)
    assert len(found) == 1
    for row in (row for rows in found.values() for row in rows):
        assert (row["tenant"], row["event_id"]) == ("tenant", uuid.UUID(event.event_id))


async def test_the_rows_of_every_event_fit_the_tables_that_the_migrations_make(tmp_path: Path) -> None:
    archive = Archive(ArchiveSettings(url=f"chdb://{tmp_path}/archive"))
    await archive.open()
    try:
        await migrate(archive, MIGRATIONS)
        for event in EVENTS:
            for table, rows in rows_of(event, SOURCE).items():
                await archive.insert(table, rows)
                kept = await archive.query(
                    f"SELECT count() AS n FROM {table} FINAL WHERE event_id = {{id:UUID}}", {"id": event.event_id}
                )
                assert kept == [{"n": len(rows)}], event.type
        await archive.insert("messages", message_rows(b.a_step_recorded().messages.inline or "", SOURCE))
    finally:
        await archive.close()


@pytest.mark.parametrize("event", [e for e in EVENTS if e.type.startswith(("job.", "session."))], ids=lambda e: e.type)
def test_jobs_and_sessions_are_kept_whole(event: Event) -> None:
    ((_, (row,)),) = rows_of(event, SOURCE).items()
    assert row["type"] == event.type
    assert EVENT_OF[event.type].from_json(str(row["body"]).encode()) == event


def one(event: Event) -> dict[str, Any]:
    ((_, (row,)),) = rows_of(event, SOURCE).items()
    return row


def test_no_score_is_not_a_score_of_zero() -> None:
    assert [one(b.a_session_ended(score=score))["scored"] for score in (None, 0.0, 10.0)] == [0, 1, 1]
    assert [one(b.a_reward_scored(score=score))["scored"] for score in (None, 0.0, 10.0)] == [0, 1, 1]
    assert one(b.a_session_finished())["scored"] == 0


def test_how_a_session_ended_is_a_column() -> None:
    ended = one(b.a_session_ended(reason=EndReason.TIMEOUT, cause="killed", score=None, wall_s=2.5))
    assert (ended["reason"], ended["cause"], ended["wall_s"]) == ("timeout", "killed", 2.5)
    finished = one(b.a_session_finished(outcome=b.a_run_outcome(reason=EndReason.AGENT_ERROR, cause="exit 3")))
    assert (finished["reason"], finished["cause"]) == ("agent_error", "exit 3")
    assert one(b.a_session_queued())["reason"] == ""


def test_a_step_without_an_answer_has_no_time_to_its_first_byte() -> None:
    assert (one(b.a_step_recorded())["ttft_s"], one(b.a_step_recorded(ttft_s=0.0))["ttft_s"]) == (-1.0, 0.0)


def test_each_number_of_a_report_is_a_row() -> None:
    rows = rows_of(b.a_metrics_reported(values={"loss": 0.5, "kl": 0.1}), SOURCE)["metrics"]
    assert [(row["name"], row["value"]) for row in rows] == [("loss", 0.5), ("kl", 0.1)]


def test_a_dead_letter_of_unknown_origin_fits_its_table() -> None:
    row = one(LETTER)
    assert (row["partition"], row["offset"], row["consumer_group"], row["bus"]) == (0, 0, "dataelf", "bus-1")


@pytest.mark.parametrize(
    "event",
    [b.a_session_queued(session_id="no-uuid"), b.a_step_recorded(session_id=""), b.a_snapshot_taken(session_id="x")],
)
def test_an_identity_that_no_table_takes_is_poison(event: Event) -> None:
    with pytest.raises(PoisonError, match=f"{event.type} cannot be archived"):
        rows_of(event, SOURCE)


def test_messages_are_rows_under_their_digest() -> None:
    step = b.a_step_recorded()
    rows = message_rows(step.messages.inline or "", SOURCE)
    assert [row["role"] for row in rows] == ["user", "assistant"]
    assert [row["sha256"] for row in rows] == [*step.input_hashes, step.output_hash]
    assert [json.loads(str(row["body"]))["content"] for row in rows] == ["row P F", "down"]
    assert message_rows("[]", SOURCE) == []


@pytest.mark.parametrize("text", ["", "x", "[1]", '[{"role": "user"}]', "3", "null"])
def test_messages_of_another_form_are_poison(text: str) -> None:
    with pytest.raises(PoisonError, match="not a list of messages"):
        message_rows(text, SOURCE)


def test_a_payload_is_read_back_from_its_column() -> None:
    payload = Payload(ref=b.an_object_ref())
    assert payload_of(payload.model_dump_json()) == payload
    assert payload_of("") is None
