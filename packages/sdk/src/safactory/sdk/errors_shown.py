"""How the command ends: one line on stderr and an exit status for each kind of failure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from safactory.contracts.errors import ConfigError, SafactoryError
from safactory.sdk.interrupts import Interrupted

EXIT_FAILED = 1
EXIT_USAGE = 2
"""A bad command, configuration or dataset."""
EXIT_UNSCORED = 3
"""No session was scored."""
EXIT_INTERRUPTED = 130


@contextmanager
def errors_shown() -> Iterator[None]:
    """Turn our errors into a line and an exit status."""
    try:
        yield
    except ConfigError as error:
        print(f"safactory: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error
    except SafactoryError as error:
        print(f"safactory: {error}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from error
    except (Interrupted, KeyboardInterrupt):
        print("safactory: interrupted", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED) from None
