"""Sessions a second and CPU a session, plain and warm: `python benchmarks/warm_pool.py [--sessions N] [--slots N]`.

It runs the frozenlake runner through the worker's own runtime against a model that answers at once (a thread of a
process of its own, whose CPU is not counted), and prints one line for each kind of start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safactory.contracts.runner import LaunchSpec, SimulationStartRequest
from safactory.runtime_worker.runtimes.base import RunnerStart
from safactory.runtime_worker.runtimes.factory import make_runtime
from safactory.runtime_worker.session_folder import WorkerFolder
from safactory.runtime_worker.settings import RuntimeWorkerSettings
from safactory.runtime_worker.variables import runner_variables

RUNNER = Path(__file__).parents[1] / "environments" / "frozenlake" / "runner.py"

MODEL = """
import http.server, json
body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [{"index": 0,
    "finish_reason": "length", "message": {"role": "assistant", "content": "right"}}]}).encode()
class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    def log_message(self, *_): pass
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def measure(*, warm: bool, sessions: int, slots: int, port: int) -> str:
    """Run so many sessions and say what they cost."""
    url = f"http://127.0.0.1:{port}/v1/sessions"
    launch = LaunchSpec(command=("{python}", "runner.py"), runner_path=str(RUNNER), warm=warm)
    gate = asyncio.Semaphore(slots)
    with tempfile.TemporaryDirectory() as root:
        folders = WorkerFolder(Path(root), "benchmark")
        folders.make()
        settings = RuntimeWorkerSettings(folder=Path(root))
        runtime = make_runtime(settings)

        async def session(number: int) -> None:
            request = SimulationStartRequest(
                job_id="benchmark",
                session_id=f"{'warm' if warm else 'plain'}-{number}",
                agent_name="frozenlake",
                gateway_base_url=url,
                session_url=f"{url}/{number}",
                session_token="none",
                model="default",
                env_params={"dataset": {"map": ["SFF", "FHF", "FFG"]}},
            )
            async with gate:
                folder = folders.session(request.session_id, 1, 1)
                text = request.model_dump_json()
                folder.make(text)
                variables = runner_variables(request, text, launch, folder, settings.runner_path)
                ended = await runtime.run(RunnerStart(launch, folder, variables, time.time() + 60))
                await asyncio.to_thread(folder.remove)
                assert ended.exit_code == 0 and ended.warm is warm, ended
                assert json.loads(ended.stdout.split(" ", 1)[1])["step_count"] == 6, ended.stdout

        await session(-1)
        started_s, worker_s = time.monotonic(), time.process_time()
        await asyncio.gather(*(session(number) for number in range(sessions)))
        wall_s, worker_s = time.monotonic() - started_s, time.process_time() - worker_s
        before = _children_cpu_s()
        await runtime.end()
        folders.remove()
        runners_s = _children_cpu_s() - before
    return (
        f"{'warm' if warm else 'plain':<5} {sessions / wall_s:7.1f} sessions/s, {slots} at once;"
        f" CPU a session: worker {1000 * worker_s / sessions:.1f} ms, runner {1000 * runners_s / (sessions + 1):.1f} ms"
    )


def _children_cpu_s() -> float:
    # A parent's runners are counted when it is reaped itself; the warm-up is counted with them.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure both kinds of start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=300, help="warm sessions; a tenth of it are started plainly")
    parser.add_argument("--slots", type=int, default=8)
    arguments = parser.parse_args()
    with subprocess.Popen([sys.executable, "-c", MODEL], stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        port = int(model.stdout.readline())
        try:
            for warm in (False, True):
                sessions = arguments.sessions if warm else max(1, arguments.sessions // 10)
                print(asyncio.run(measure(warm=warm, sessions=sessions, slots=arguments.slots, port=port)))
        finally:
            model.kill()


if __name__ == "__main__":
    main()
