from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from safactory.contracts.errors import ConfigError, ServiceError
from safactory.sdk.errors_shown import errors_shown
from safactory.sdk.interrupts import Interrupted, stop_flag


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_the_old_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_flag() as flag:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        started_s = time.monotonic()
        with pytest.raises(Interrupted):
            flag.sleep(30)
        assert time.monotonic() - started_s < 5
        with pytest.raises(Interrupted):
            flag.sleep(0)
        flag.clear()
        flag.sleep(0)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (ConfigError("is not YAML", file="a.yaml", line=3), 2, "safactory: a.yaml:3: is not YAML"),
        (ServiceError("gateway ended"), 1, "safactory: gateway ended"),
        (Interrupted(), 130, "safactory: interrupted"),
        (KeyboardInterrupt(), 130, "safactory: interrupted"),
    ],
)
def test_each_failure_is_one_line_and_an_exit_status(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, says: str
) -> None:
    with pytest.raises(SystemExit) as left, errors_shown():
        raise error
    assert left.value.code == status
    assert capsys.readouterr().err.strip() == says
