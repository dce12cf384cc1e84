"""`watch`: follow a job until it is over and its results are in the archive."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

from rich.console import Console

from safactory.contracts.errors import ServiceError
from safactory.sdk.calls import Facts, NotFoundError
from safactory.sdk.client import Safactory
from safactory.sdk.interrupts import StopFlag
from safactory.sdk.progress import Sight, counts, number, screen

LOOK_S = 1.0
ARCHIVE_S = 30.0
"""The longest wait for the last endings to be in the archive."""


class Watch:
    """One job, looked at again and again."""

    def __init__(self, client: Safactory, flag: StopFlag, check: Callable[[], None], console: Console) -> None:
        self._client = client
        self._flag = flag
        self._check = check
        self._console = console

    def until_ended(self, job_id: str, title: str, seconds_max: float = math.inf) -> Facts:
        """Show a job's progress and return its last status; a job that takes longer than `seconds_max` is cancelled.

        Raises:
            Interrupted: the person asked to stop.
            ServiceError: a part of the stack ended, or the scheduler did not answer.
        """
        sight = Sight(title=title, status=self._client.job(job_id))
        last_step, capacity_s, busy_s = -1, 0.0, 0.0
        with screen(self._console) as shown:
            while True:
                status = sight.status = self._client.job(job_id)
                new_capacity_s, new_busy_s = number(status, "capacity_s"), number(status, "busy_s")
                if new_capacity_s > capacity_s:
                    sight.rollout_idle = max(0.0, 1 - (new_busy_s - busy_s) / (new_capacity_s - capacity_s))
                capacity_s, busy_s = new_capacity_s, new_busy_s
                if number(status, "steps_wanted"):
                    last_step = self._training(sight, job_id, last_step)
                shown.show(sight)
                if status["state"] == "ended":
                    return status
                if time.monotonic() - sight.started_s > seconds_max and status["state"] == "running":
                    self._client.cancel(job_id, f"its {seconds_max:g} s are over")
                self._check()
                self._flag.sleep(LOOK_S)

    def results(self, job_id: str, status: Facts) -> Facts:
        """Return the result table, once every ending is in the archive.

        Raises:
            Interrupted: the person asked to stop.
            ServiceError: the archive does not have them all in time.
        """
        ended, wanted = sum(counts(status).values()), number(status, "attempts")
        waited_s = 0.0
        while True:
            with contextlib.suppress(ServiceError, NotFoundError):
                results = self._client.results(job_id)
                # A resumed job's older endings are there from the start: only the attempts tell them apart.
                if number(results, "attempts") >= wanted:
                    return results
            if waited_s > ARCHIVE_S:
                raise ServiceError(f"the archive does not have all {ended} endings of {job_id} after {ARCHIVE_S:g} s")
            self._flag.sleep(0.2)
            waited_s += 0.2

    def _training(self, sight: Sight, job_id: str, last_step: int) -> int:
        for entry in self._client.metrics(job_id, last_step):
            values = entry["values"]
            if not isinstance(values, dict):
                continue
            sight.rewards.append(number(values, "reward_mean"))
            sight.trainer_idle = number(values, "idle_fraction")
            last_step = int(number(entry, "step"))
        versions = self._client.weights(job_id)
        if versions:
            sight.version = str(versions[-1]["version"])
        return last_step
