"""One line an entry, with the ids at hand; through the real handler of a process of its own."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from safactory.infra.logs import JsonFormatter, TextFormatter, log_context

SCRIPT = """
import logging
from safactory.infra.logs import log_context, setup_logs
from safactory.infra.settings import LogSettings
setup_logs("gateway", LogSettings(format={form!r}))
with log_context(session_id="s1"):
    with log_context(event_id="e1"):
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("x.y").exception("two\\nlines of %s", "grüße")
logging.getLogger("aiokafka").error("says it a hundred times a second")
logging.getLogger("x").info("after")
"""


def logged(form: str) -> list[str]:
    script = SCRIPT.format(form=form)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "", "stdout is for results"
    return done.stderr.splitlines()


def test_a_json_line_has_the_ids_the_service_and_the_traceback() -> None:
    first, second = map(json.loads, logged("json"))
    assert (first["service"], first["level"], first["logger"]) == ("gateway", "error", "x.y")
    assert (first["session_id"], first["event_id"]) == ("s1", "e1")
    assert first["message"] == "two\nlines of grüße"
    assert first["traceback"].endswith("ValueError: broken")
    assert first["time"].endswith("Z")
    assert second["message"] == "after"
    assert "session_id" not in second


def test_a_text_line_is_for_a_person() -> None:
    lines = logged("text")
    assert "gateway" in lines[0]
    assert "session_id=s1 event_id=e1" in "\n".join(lines[:2])
    assert lines[-1].endswith("info    after")


def test_a_context_ends_with_its_block_also_after_an_error() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "m", None, None)
    try:
        with log_context(session_id="s"):
            assert json.loads(JsonFormatter("t").format(record))["session_id"] == "s"
            raise ValueError
    except ValueError:
        pass
    assert "session_id" not in JsonFormatter("t").format(record)
    assert "session_id" not in TextFormatter("t").format(record)
