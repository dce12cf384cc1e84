"""`python -m safactory.inference`: one model server."""

from __future__ import annotations


def main() -> None:
    """Read the settings, then load what they need and serve until a signal."""
    from safactory.inference.settings import InferenceSettings
    from safactory.infra.logs import setup_logs

    settings = InferenceSettings()
    setup_logs("inference")
    from safactory.inference.app import create_app
    from safactory.infra.serve import run

    run(create_app(settings), settings)


if __name__ == "__main__":
    main()
