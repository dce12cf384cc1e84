"""Logs: one line an entry on stderr, as JSON or as text, with the session and event at hand in every line."""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import sys
import time
from collections.abc import Iterator

from safactory.infra.settings import LogSettings

_context: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("log_context", default=None)

_QUIET = ("aiokafka", "httpx", "httpcore", "uvicorn.access", "grpc", "faststream")
"""Libraries that repeat one failure many times a second; our own lines say it once."""

_ERRORS_ONLY = ("asyncio", "uvicorn.error")
"""What they say at this level is a failure that nobody else reports."""


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Put these fields into every line logged inside the block, e.g. `session_id=…, event_id=…`."""
    token = _context.set({**(_context.get() or {}), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Render an entry; a traceback is one field."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **(_context.get() or {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same for a person at a terminal."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Render an entry on one line, then its traceback."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {key}={value}" for key, value in (_context.get() or {}).items())
        line = f"{moment} {self._service:<14} {record.levelname.lower():<7} {record.getMessage()}{fields}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def setup_logs(service: str, settings: LogSettings | None = None) -> None:
    """Send all logging of this process to stderr in the configured form."""
    settings = settings or LogSettings()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service) if settings.format == "json" else TextFormatter(service))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for name in _ERRORS_ONLY:
        logging.getLogger(name).setLevel(logging.ERROR)
