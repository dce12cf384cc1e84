"""`Payload`: content that travels inside an event while it is small, and by reference when it is not."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from safactory.contracts.event import Model

INLINE_BYTES_MAX = 32 * 1024
"""Above this a payload is put into the object store before the event that carries it is published."""


class ObjectRef(Model):
    """One immutable object in the store."""

    uri: str
    """`file:///…` or `s3://bucket/key`; the key ends in the digest."""
    sha256: str
    """Hex digest of the uncompressed content."""
    bytes: int
    """Size of the uncompressed content."""
    codec: str = "identity"
    """How the stored bytes are encoded: `identity` or `zstd`."""


class Payload(Model):
    """JSON text, inline or by reference: exactly one of the two is set."""

    inline: str | None = None
    ref: ObjectRef | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.inline is None) == (self.ref is None):
            raise ValueError("a payload has exactly one of inline and ref")
        return self
