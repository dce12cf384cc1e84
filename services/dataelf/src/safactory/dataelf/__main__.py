"""`python -m safactory.dataelf`: settings first, heavy imports after."""

from __future__ import annotations

from safactory.dataelf.settings import DataelfSettings
from safactory.infra.logs import setup_logs
from safactory.infra.settings import ArchiveSettings, BusSettings, ObjectSettings


def main() -> None:
    """Serve until a signal."""
    settings = DataelfSettings()
    setup_logs("dataelf")
    from safactory.dataelf.app import create_app
    from safactory.infra.serve import run

    run(create_app(settings, BusSettings(), ObjectSettings(), ArchiveSettings()), settings)


if __name__ == "__main__":
    main()
