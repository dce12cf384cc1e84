"""Both runners are fit to be forked warm, and give the same result as when they are run as scripts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from safactory.contracts.runner import LaunchSpec, SimulationStartRequest, parse_result
from safactory.runtime_worker.runtimes.base import RunnerStart
from safactory.runtime_worker.runtimes.factory import make_runtime
from safactory.runtime_worker.session_folder import SessionFolder
from safactory.runtime_worker.settings import RuntimeWorkerSettings
from safactory.runtime_worker.variables import runner_variables

Environment = Any
Model = Any


@pytest.mark.parametrize("name", ["frozenlake", "math"])
async def test_forks_of_a_warm_runner_do_what_the_script_does(
    name: str, request: pytest.FixtureRequest, model: Model, tmp_path: Path
) -> None:
    environment: Environment = request.getfixturevalue(name)
    row = environment.rows("smoke.jsonl")[0]
    model.reply = lambda _: "right"
    as_script = await asyncio.to_thread(environment.run, model, row)
    model.requests.clear()
    settings = RuntimeWorkerSettings(folder=tmp_path)
    runtime = make_runtime(settings)
    runner = environment.folder / "runner.py"
    launch = LaunchSpec(command=("{python}", str(runner)), runner_path=str(runner))
    url = f"http://127.0.0.1:{model.port}/v1/sessions"

    async def fork(number: int) -> None:
        start = SimulationStartRequest(
            job_id="j1",
            session_id=f"s{number}",
            agent_name=name,
            gateway_base_url=url,
            session_url=f"{url}/s{number}",
            session_token=f"token-{number}",
            model="default",
            env_params={"dataset": row},
        )
        text = start.model_dump_json()
        folder = SessionFolder(tmp_path / f"s{number}")
        folder.make(text)
        variables = runner_variables(start, text, launch, folder, settings.runner_path)
        ended = await runtime.run(RunnerStart(launch, folder, variables, time.time() + 30))
        assert (ended.exit_code, ended.warm, ended.stderr_tail) == (0, True, ""), ended
        result = parse_result(ended.stdout, f"s{number}")
        assert result.model_copy(update={"session_id": "s1"}) == as_script
        assert list(folder.work.iterdir()) == []

    await asyncio.gather(*(fork(number) for number in range(1, 6)))
    await runtime.end()
    assert {key for key in model.keys if key != "Bearer signed"} == {f"Bearer token-{n}" for n in range(1, 6)}
