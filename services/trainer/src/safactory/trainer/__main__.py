"""`python -m safactory.trainer`: one trainer."""

from __future__ import annotations


def main() -> None:
    """Read the settings, then load what they need and train until a signal."""
    from safactory.infra.logs import setup_logs
    from safactory.infra.settings import BusSettings, ObjectSettings
    from safactory.trainer.settings import TrainerSettings

    settings = TrainerSettings()
    setup_logs("trainer")
    from safactory.infra.serve import run
    from safactory.trainer.app import create_app

    run(create_app(settings, BusSettings(), ObjectSettings()), settings)


if __name__ == "__main__":
    main()
