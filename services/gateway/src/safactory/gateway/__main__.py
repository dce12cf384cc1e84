"""`python -m safactory.gateway`: settings first, heavy imports after."""

from __future__ import annotations

from safactory.gateway.settings import GatewaySettings
from safactory.infra.logs import setup_logs
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import BusSettings, ObjectSettings


def main() -> None:
    """Serve until a signal."""
    settings = GatewaySettings()
    setup_logs("gateway")
    from safactory.gateway.app import create_app
    from safactory.infra.serve import run

    run(create_app(settings, BusSettings(), ObjectSettings(), TokenSettings()), settings)


if __name__ == "__main__":
    main()
