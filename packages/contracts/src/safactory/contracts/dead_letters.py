"""A record that could not be read or handled, as its dead-letter topic keeps it."""

from __future__ import annotations

from typing import ClassVar

from safactory.contracts.event import Event


class DeadLetter(Event):
    """Read from a `.dlq` topic; never published as an event, because its value may be anything."""

    type: ClassVar[str] = "record.dead_lettered"
    identified_by: ClassVar[tuple[str, ...]] = ("topic", "partition", "offset", "group")

    topic: str
    """Where it came from."""
    partition: int
    offset: int
    group: str
    """The consumer group that gave it up."""
    key: str
    kind: str
    """Its CloudEvents type, empty when it had none."""
    error: str
    attempts: int
    value: str
    """As text; bytes that are not UTF-8 are replaced."""
