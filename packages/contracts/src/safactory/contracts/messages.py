"""Content-addressed chat messages: a message is sent and stored once, however many steps repeat it.

A step names its input by hashes and carries only the bodies that its session has not sent before.
"""

from __future__ import annotations

import hashlib
import json

from pydantic import JsonValue

from safactory.contracts.event import Model


def canonical_json(value: JsonValue) -> str:
    """Return one spelling for equal values: sorted keys, no spaces, no escapes beyond JSON's own."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Message(Model):
    """One chat message as the agent sent it, or as the model answered it."""

    sha256: str
    """Hex digest of the canonical JSON of `body`."""
    role: str
    body: dict[str, JsonValue]

    @classmethod
    def of(cls, body: dict[str, JsonValue]) -> Message:
        """Address a message by its content."""
        role = body.get("role")
        digest = hashlib.sha256(canonical_json(body).encode()).hexdigest()
        return cls(sha256=digest, role=role if isinstance(role, str) else "", body=body)

    @property
    def text(self) -> str:
        """The message's text, the parts of a multi-part message joined by newlines."""
        content = self.body.get("content")
        if isinstance(content, str):
            return content
        parts = content if isinstance(content, list) else []
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
