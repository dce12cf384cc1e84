"""Snapshots: what a session's working folder held when its runner ended."""

from __future__ import annotations

from typing import ClassVar

from safactory.contracts.event import Event
from safactory.contracts.payload import ObjectRef


class SnapshotTaken(Event):
    """A session's files are in the object store."""

    type: ClassVar[str] = "snapshot.taken"
    identified_by: ClassVar[tuple[str, ...]] = ("session_id", "attempt", "kind", "sha256")

    session_id: str
    attempt: int
    job_id: str
    kind: str
    """`workdir`: a tar archive of the runner's working folder."""
    sha256: str
    parent: str = ""
    """Digest of the snapshot that this one changes; empty for a whole one."""
    files: int
    object: ObjectRef
