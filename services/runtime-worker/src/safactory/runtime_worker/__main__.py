"""`python -m safactory.runtime_worker`: one worker."""

from __future__ import annotations


def main() -> None:
    """Read the settings, then load what they need and serve until a signal."""
    from safactory.infra.logs import setup_logs
    from safactory.infra.settings import BusSettings, ObjectSettings
    from safactory.runtime_worker.settings import RuntimeWorkerSettings

    settings = RuntimeWorkerSettings()
    setup_logs("runtime-worker")
    from safactory.infra.serve import run
    from safactory.runtime_worker.app import create_app

    run(create_app(settings, BusSettings(), ObjectSettings()), settings)


if __name__ == "__main__":
    main()
