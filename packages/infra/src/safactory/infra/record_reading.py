"""Records → events, and the dead letters of those that cannot be read or handled.

A dead letter is the record as it was, with headers that say where it came from and why it was given up.
"""

from __future__ import annotations

import traceback

from aiokafka import ConsumerRecord
from pydantic import ValidationError

from safactory.contracts.dead_letters import DeadLetter
from safactory.contracts.errors import PoisonError
from safactory.contracts.event import Event
from safactory.contracts.topics import DEAD_LETTERS, EVENT_OF
from safactory.infra.outbox import Record


def header(record: ConsumerRecord, name: str) -> str:
    """Return a header's text, empty when the record has none of this name."""
    return str(dict(record.headers).get(name, b"").decode(errors="replace"))


def read_record(record: ConsumerRecord, topic: str) -> Event:
    """Return a record's event; `topic` is without the bus's prefix.

    Raises:
        PoisonError: it has an unknown type, or a value of another form.
    """
    kind = header(record, "ce_type")
    if topic.endswith(DEAD_LETTERS):
        return _dead_letter(record, kind)
    event_class = EVENT_OF.get(kind)
    if event_class is None:
        raise PoisonError(f"unknown event type {kind!r}: written by a newer service, or not by ours")
    try:
        return event_class.from_json(record.value or b"")
    except ValidationError as error:
        raise PoisonError(f"not a valid {kind}: {error.errors(include_url=False)[:3]}") from error


def letter_of(record: ConsumerRecord, topic: str, group: str, error: Exception, attempts: int) -> Record:
    """Return the dead letter of a record that a group gives up."""
    provenance = {
        "dlq_topic": topic,
        "dlq_partition": str(record.partition),
        "dlq_offset": str(record.offset),
        "dlq_timestamp_ms": str(record.timestamp),
        "dlq_group": group,
        "dlq_attempts": str(attempts),
        "dlq_error": f"{type(error).__name__}: {error}"[:2000],
        "dlq_trace": "".join(traceback.format_exception(error))[-4000:],
    }
    headers = (*record.headers, *((name, text.encode(errors="replace")) for name, text in provenance.items()))
    return Record(f"{record.topic}{DEAD_LETTERS}", record.key or b"", record.value or b"", headers)


def _dead_letter(record: ConsumerRecord, kind: str) -> DeadLetter:
    return DeadLetter(
        topic=header(record, "dlq_topic") or record.topic,
        partition=_number(header(record, "dlq_partition"), record.partition),
        offset=_number(header(record, "dlq_offset"), record.offset),
        group=header(record, "dlq_group"),
        key=(record.key or b"").decode(errors="replace"),
        kind=kind,
        error=header(record, "dlq_error"),
        attempts=_number(header(record, "dlq_attempts"), 0),
        value=(record.value or b"").decode(errors="replace"),
    )


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() else otherwise
