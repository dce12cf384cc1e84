"""Ports of a local stack: free ones, or those that were asked for."""

from __future__ import annotations

import random
import socket

import psutil

from safactory.contracts.errors import ConfigError

FIRST, LAST = 12_000, 30_000
"""Below the range that the kernel gives to outgoing connections."""


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(taken: set[int]) -> int:
    """Return a free port that is not among those given out already."""
    while True:
        port = random.randint(FIRST, LAST)
        if port not in taken and is_free(port):
            taken.add(port)
            return port


def claim(port: int, variable: str) -> int:
    """Return a port that was asked for.

    Raises:
        ConfigError: somebody listens there; says who.
    """
    if not is_free(port):
        raise ConfigError(
            f"port {port} is taken by {holder_of(port)}: stop it, or set {variable} to another", field=variable
        )
    return port


def holder_of(port: int) -> str:
    """Return the name and process id of who listens on a port, as far as this user may know."""
    try:
        listening = [
            connection
            for connection in psutil.net_connections("tcp")
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
        ]
        pid = listening[0].pid if listening else None
        return f"{psutil.Process(pid).name()} (process {pid})" if pid else "another user's process"
    except psutil.Error:
        return "another user's process"
