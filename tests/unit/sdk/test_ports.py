from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from safactory.contracts.errors import ConfigError
from safactory.sdk.ports import FIRST, LAST, claim, free_port, holder_of, is_free


def test_free_ports_are_different_and_outside_the_kernels_range() -> None:
    taken: set[int] = set()
    ports = [free_port(taken) for _ in range(50)]
    assert len(set(ports)) == 50 == len(taken)
    assert all(FIRST <= port <= LAST for port in ports)


def test_a_taken_port_is_refused_with_its_number_and_the_holders_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        expected = rf"GATEWAY_PORT: port {port} is taken by .*\(process {os.getpid()}\)"
        with pytest.raises(ConfigError, match=expected):
            claim(port, "GATEWAY_PORT")
    assert claim(port, "GATEWAY_PORT") == port


def test_the_holder_is_named_also_when_it_is_another_process() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        assert f"(process {child.pid})" in holder_of(port)
        child.kill()
