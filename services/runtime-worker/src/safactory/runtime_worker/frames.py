"""Frames between a worker and its parents: four bytes of length, then JSON; file descriptors ride on the length.

Both ends are ours. A frame's size is bounded by what a worker puts into one: an argv and an environment.
"""

from __future__ import annotations

import json
import socket
from typing import Literal, NotRequired, TypedDict

HEADER_BYTES = 4
FDS_A_FRAME = 3


class Order(TypedDict):
    """What a worker asks of a parent."""

    kind: Literal["spawn", "kill"]
    run: str
    """The worker's name for one runner."""
    argv: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    signal: NotRequired[int]


class Report(TypedDict):
    """What a parent tells its worker."""

    kind: Literal["ready", "unfit", "started", "failed", "ended"]
    run: NotRequired[str]
    pid: NotRequired[int]
    exit_code: NotRequired[int]
    """Negative for the signal that ended it."""
    error: NotRequired[str]


def encode(frame: Order | Report) -> tuple[bytes, bytes]:
    """Return a frame's header and body."""
    body = json.dumps(frame).encode()
    return len(body).to_bytes(HEADER_BYTES, "big"), body


def receive_order(control: socket.socket) -> tuple[Order, list[int]] | None:
    """Block for the next order and its file descriptors; None when the worker is gone."""
    header, fds, _, _ = socket.recv_fds(control, HEADER_BYTES, FDS_A_FRAME)
    if len(header) < HEADER_BYTES:
        return None
    body = bytearray()
    wanted = int.from_bytes(header, "big")
    while len(body) < wanted:
        chunk = control.recv(wanted - len(body))
        if not chunk:
            return None
        body += chunk
    order: Order = json.loads(body)
    return order, fds


def split_reports(buffer: bytearray) -> list[Report]:
    """Take every whole report from the front of a buffer."""
    reports: list[Report] = []
    while len(buffer) >= HEADER_BYTES:
        end = HEADER_BYTES + int.from_bytes(buffer[:HEADER_BYTES], "big")
        if len(buffer) < end:
            break
        reports.append(json.loads(buffer[HEADER_BYTES:end]))
        del buffer[:end]
    return reports
