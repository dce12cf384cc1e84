"""Free loopback ports."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Return a port nobody listens on, below the range that the kernel gives to outgoing connections."""
    for _ in range(200):
        port = random.randint(12_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 12000 and 30000")
