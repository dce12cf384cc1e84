"""`Event`: one fact, appended to the bus and never changed.

The value on the wire is the model as JSON; identity and routing travel as CloudEvents headers (`infra.bus`).
Written strictly, read leniently: an unknown field of a newer writer is ignored, an unknown field here is an error.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from safactory.contracts.ids import derived_id


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Model(BaseModel):
    """A frozen value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Event(Model):
    """The base of every event; a subclass names its CloudEvents type and what makes it the same fact."""

    type: ClassVar[str]
    """CloudEvents type, e.g. `session.sealed` for the class `SessionSealed`."""
    identified_by: ClassVar[tuple[str, ...]]
    """Fields whose values, with the type, are the fact's identity."""

    occurred_at: datetime = Field(default_factory=now)

    @property
    def event_id(self) -> str:
        """The uuid5 of type and identity: a retry of the same fact has the same id."""
        return derived_id(self.type, *(str(getattr(self, name)) for name in self.identified_by))

    def to_json(self) -> bytes:
        """Return the event's value on the wire."""
        return self.model_dump_json().encode()

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        """Read a value from the wire.

        Raises:
            pydantic.ValidationError: the value is not such an event.
        """
        try:
            return cls.model_validate_json(value)
        except ValidationError:
            # Of a newer writer. Not the first try, because it also drops what open models, as a runner's result, carry.
            return cls.model_validate_json(value, extra="ignore")
