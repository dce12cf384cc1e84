"""`boundary()`: the one place where foreign exceptions become ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from safactory.contracts.errors import SafactoryError


@contextlib.contextmanager
def boundary(error: type[SafactoryError], what: str) -> Iterator[None]:
    """Re-raise whatever escapes the block as `error("what: …")`, keeping the cause; our own errors pass unchanged."""
    try:
        yield
    except SafactoryError:
        raise
    except Exception as cause:
        raise error(f"{what}: {type(cause).__name__}: {cause}") from cause
