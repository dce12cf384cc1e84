"""A model server that answers as a test says, and a way to run an environment's runner as a process."""

from __future__ import annotations

import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from safactory.contracts.messages import Message
from safactory.contracts.runner import SimulationStartRequest, SimulationStartResult, parse_result
from safactory.contracts.steps import StepStatus
from safactory.contracts.trajectory import Trajectory, TrajectoryStep
from safactory.evaluator.rule_file import RuleFile
from safactory.evaluator.scoring_case import ScoringCase
from safactory.evaluator.scoring_process import answer
from safactory.evaluator.verdict import Verdict

ENVIRONMENTS = Path(__file__).parents[3] / "environments"

Body = dict[str, Any]


@dataclass
class Model:
    """An OpenAI-compatible server."""

    port: int
    reply: Callable[[Body], str] = lambda _: "right"
    http_status: int = 200
    finish_reason: str = "stop"
    requests: list[Body] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def serve(model: Model) -> http.server.ThreadingHTTPServer:
    """Start a server that consults `model` for each call."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.requests.append(body)
            model.paths.append(self.path)
            model.keys.append(self.headers["authorization"])
            message = {"role": "assistant", "content": model.reply(body) if model.http_status == 200 else ""}
            choice = {"index": 0, "finish_reason": model.finish_reason, "message": message}
            answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            error = {"error": {"type": "upstream_http_error", "message": "the model is away"}}
            text = json.dumps(answer if model.http_status == 200 else error).encode()
            self.send_response(model.http_status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def model() -> Iterator[Model]:
    one = Model(port=0)
    server = serve(one)
    yield one
    server.shutdown()
    server.server_close()


@dataclass
class Environment:
    """One folder of `environments/`."""

    name: str
    files: dict[str, RuleFile] = field(default_factory=dict)
    """Evaluators that were loaded already."""

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    def rows(self, file: str) -> list[Body]:
        return [json.loads(line) for line in (self.folder / "datasets" / file).read_text().splitlines()]

    def run(self, model: Model, row: Body, **request_fields: Any) -> SimulationStartResult:
        """Run the runner as a script and return its one result."""
        url = f"http://127.0.0.1:{model.port}/v1/sessions"
        request = SimulationStartRequest(
            job_id="j1",
            session_id="s1",
            agent_name=self.name,
            gateway_base_url=url,
            session_url=f"{url}/s1",
            session_token="signed",
            model="default",
            env_params={"dataset": row, **request_fields.pop("env_params", {})},
            **request_fields,
        )
        done = subprocess.run(
            [sys.executable, str(self.folder / "runner.py")],
            input=request.model_dump_json(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return parse_result(done.stdout, "s1")

    def score(self, row: Body, *answers: str, status: StepStatus = StepStatus.OK) -> Verdict:
        """Score recorded answers as a scoring process does."""
        steps = [
            TrajectoryStep(
                seq=seq,
                status=status,
                messages=[],
                response=Message.of({"role": "assistant", "content": text}),
            )
            for seq, text in enumerate(answers, 1)
        ]
        case = ScoringCase(
            evaluator_path=str(self.folder / "rule_evaluator.py"),
            job_id="j1",
            group_id="g1",
            environment=self.name,
            route="default",
            pass_score=10,
            timeout_s=30,
            row=row,
            start_result=SimulationStartResult(session_id="s1", total_reward=10.0),
            trajectory=Trajectory(session_id="s1", attempt=1, steps=steps),
        )
        scored = answer(case, self.files)
        assert scored.verdict is not None, scored.error
        return scored.verdict

    def module(self, file: str) -> ModuleType:
        """Import one of the environment's files."""
        name = f"{self.name}_{file}"
        spec = importlib.util.spec_from_file_location(name, self.folder / f"{file}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def frozenlake() -> Environment:
    return Environment("frozenlake")


@pytest.fixture
def math() -> Environment:
    return Environment("math")
