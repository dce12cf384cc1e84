"""`python -m safactory.scheduler`: settings first, heavy imports after."""

from __future__ import annotations

from safactory.infra.logs import setup_logs
from safactory.infra.session_tokens import TokenSettings
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.scheduler.settings import SchedulerSettings


def main() -> None:
    """Serve until a signal."""
    settings = SchedulerSettings()
    setup_logs("scheduler")
    from safactory.infra.serve import run
    from safactory.scheduler.app import create_app

    run(create_app(settings, BusSettings(), ObjectSettings(), TokenSettings()), settings)


if __name__ == "__main__":
    main()
