"""`python -m safactory.evaluator`: one evaluator."""

from __future__ import annotations


def main() -> None:
    """Read the settings, then load what they need and serve until a signal."""
    from safactory.evaluator.settings import EvaluatorSettings
    from safactory.infra.logs import setup_logs
    from safactory.infra.settings import BusSettings, ObjectSettings

    settings = EvaluatorSettings()
    setup_logs("evaluator")
    from safactory.evaluator.app import create_app
    from safactory.infra.serve import run

    run(create_app(settings, BusSettings(), ObjectSettings()), settings)


if __name__ == "__main__":
    main()
