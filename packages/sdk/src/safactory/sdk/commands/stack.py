"""`up`, `down`, `status`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from safactory.contracts.errors import ConfigError, ServiceError
from safactory.sdk import stack_file
from safactory.sdk.errors_shown import EXIT_FAILED, errors_shown
from safactory.sdk.interrupts import Interrupted, stop_flag
from safactory.sdk.local_stack import own_stack
from safactory.sdk.stack import READY_S
from safactory.sdk.stack_plan import Policy, plan_stack

DOWN_S = 25.0


def up(home: Path, model_dir: Path | None, *, train: bool, foreground: bool) -> int:
    """Start a stack: here, or as a process of its own."""
    with errors_shown():
        running = stack_file.read(home)
        if running is not None:
            raise ConfigError(
                f"a stack runs in {home} already (process {running.supervisor_pid}): `safactory down` stops it"
            )
        if model_dir is not None and not (model_dir / "config.json").is_file():
            raise ConfigError("is not a Hugging Face directory: it has no config.json", file=str(model_dir))
        if foreground:
            return _stay(home, model_dir, train=train)
        return _detach(home, model_dir, train=train)


def _stay(home: Path, model_dir: Path | None, *, train: bool) -> int:
    policy = Policy(model_dir=model_dir, train=train) if model_dir else None
    with stop_flag() as flag, own_stack(plan_stack(home, policy=policy), flag, print) as stack:
        for name, url in stack.plan.urls.items():
            print(f"{name:<15} {url}", flush=True)
        try:
            while True:
                stack.check()
                flag.sleep(1)
        except Interrupted:
            return 0


def _detach(home: Path, model_dir: Path | None, *, train: bool) -> int:
    (home / "logs").mkdir(parents=True, exist_ok=True)
    log = home / "logs" / "stack.log"
    command = [sys.executable, "-m", "safactory.sdk", "up", "--foreground", "--home", str(home)]
    command += ["--model-dir", str(model_dir)] if model_dir else []
    command += ["--train"] if train else []
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + READY_S
    while stack_file.read(home) is None:
        if child.poll() is not None:
            # It has said itself what is wrong.
            print(log.read_text(errors="replace"), end="", file=sys.stderr)
            return child.returncode or EXIT_FAILED
        if time.monotonic() > deadline:
            child.terminate()
            raise ServiceError(f"the stack is not ready after {READY_S:g} s; see {log}")
        time.sleep(0.1)
    return status(home, as_json=False)


def down(home: Path) -> int:
    """Stop the stack of a folder."""
    with errors_shown():
        running = stack_file.require(home)
        os.kill(running.supervisor_pid, signal.SIGTERM)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(running.supervisor_pid).wait(DOWN_S)
        print(f"stopped; the archive stays in {home}")
    return 0


def status(home: Path, *, as_json: bool) -> int:
    """Show the stack of a folder; exit status 1 when a part of it is not ready."""
    with errors_shown():
        running = stack_file.require(home)
        rows = [
            {
                "name": process.name,
                "pid": running.pids.get(process.name),
                "address": running.plan.urls.get(process.name, running.plan.bus_servers),
                "state": _state(process.ready_url),
            }
            for process in running.plan.processes
        ]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        table = Table("process", "pid", "address", "state")
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        Console().print(table)
    return int(any(row["state"] not in ("ready", "running") for row in rows))


def _state(ready_url: str) -> str:
    if not ready_url:
        return "running"
    try:
        with urllib.request.urlopen(ready_url, timeout=2):
            return "ready"
    except OSError as error:
        return f"not ready: {error}"
