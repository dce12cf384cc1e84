"""The environment variables that a runner gets: a clean set, with nothing of the worker's own in it."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from safactory.contracts.runner import LaunchSpec, SimulationStartRequest
from safactory.runtime_worker.session_folder import SessionFolder

REQUEST_JSON_BYTES_MAX = 96 * 1024
"""Linux takes no single variable over 128 KiB; a request above this is on stdin and in its file alone."""

_LOOPBACK = ("127.0.0.1", "localhost", "0.0.0.0", "::1")
_TASK_FIELDS = {"SAFACTORY_TASK_ID": "task_id", "SAFACTORY_TASK_PATH": "task_path", "SAFACTORY_CATEGORY": "category"}


def base_variables(search_path: str) -> dict[str, str]:
    """Return what any process needs."""
    return {"PATH": search_path, "LANG": "C.UTF-8"}


def runner_variables(
    request: SimulationStartRequest, request_json: str, launch: LaunchSpec, folder: SessionFolder, search_path: str
) -> dict[str, str]:
    """Return a runner's whole environment; the launch may change anything in it but the contract's variables."""
    session_url = request.session_url or f"{request.gateway_base_url.rstrip('/')}/{request.session_id}"
    variables = {
        **base_variables(search_path),
        "HOME": str(folder.home),
        "TMPDIR": str(folder.tmp),
        "OPENAI_API_KEY": request.session_token,
        "OPENAI_BASE_URL": session_url,
        "OPENROUTER_BASE_URL": session_url,
        "ANTHROPIC_API_KEY": request.session_token,
        "ANTHROPIC_BASE_URL": session_url,
        **launch.env,
        "SAFACTORY_JOB_ID": request.job_id,
        "SAFACTORY_SESSION_ID": request.session_id,
        "SAFACTORY_AGENT_NAME": request.agent_name,
        "SAFACTORY_AGENT_ID": request.agent_id or request.session_id,
        "SAFACTORY_MODEL_REF": request.model,
        "SAFACTORY_ROUTE_MODEL": request.model,
        "SAFACTORY_NATIVE_PARALLEL": "1",
        "SAFACTORY_OUTPUT_SUBDIR": f"{request.job_id}/{request.session_id}",
        "SAFACTORY_GATEWAY_BASE_URL": request.gateway_base_url,
        "SAFACTORY_GATEWAY_SESSION_URL": session_url,
        "SAFACTORY_GATEWAY_SESSION_URL_CONTAINER": _seen_from_container(session_url),
        "SAFACTORY_SESSION_TOKEN": request.session_token,
        "SAFACTORY_RESULT_PATH": str(folder.result),
        "SAFACTORY_START_REQUEST_PATH": str(folder.request),
        "SAFACTORY_DEADLINE_UNIX_S": f"{request.deadline_unix_s:.3f}",
    }
    for name, field in _TASK_FIELDS.items():
        if isinstance(value := request.dataset.get(field), str | int):
            variables[name] = str(value)
    if len(request_json.encode()) < REQUEST_JSON_BYTES_MAX:
        variables["SAFACTORY_START_REQUEST_JSON"] = request_json
    return variables


def _seen_from_container(url: str) -> str:
    parts = urlsplit(url)
    if parts.hostname not in _LOOPBACK:
        return url
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=f"host.docker.internal{port}"))
