"""`run()`: serve one application until a signal, then drain."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from safactory.infra.settings import ServiceSettings

DRAIN_S = 5
"""How long open requests may go on after the signal."""


def run(app: FastAPI, settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT; the application's lifespan starts and stops all that it owns."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=DRAIN_S,
        # An upstream closes an idle connection only after its clients have: no request meets a closing socket.
        timeout_keep_alive=75,
    )
    uvicorn.Server(config).run()
