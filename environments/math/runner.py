r"""The math runner: one problem, one model call, the answer asked for in `\boxed{}`.

It reads a `SimulationStartRequest` from stdin and prints one `SimulationStartResult`. `warm_up()` loads all that a
session needs, so that a worker can fork a ready runner in milliseconds; run as a script, it does without.

Optional `env_params`: `system_prompt`, `instruction` (in place of the one below), and `max_tokens`.
"""

from __future__ import annotations

import importlib
import sys

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam

from safactory.contracts.runner import RESULT_PREFIX, SimulationStartRequest, SimulationStartResult

INSTRUCTION = "Think step by step, and put your final answer within \\boxed{}."
STOP = "SAFACTORY_STOP:"
"""The gateway's last answer in a session whose step budget is spent."""
CALL_TIMEOUT_S = 600.0

_http: list[httpx2.Client] = []
"""The HTTP client that `warm_up()` built; it holds no connection."""


def warm_up() -> None:
    """Ask once, against an answer made in this process, and build the client that each fork then uses."""
    answer = {
        "id": "warm-up",
        "object": "chat.completion",
        "created": 0,
        "model": "warm-up",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "\\boxed{2}"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    request = SimulationStartRequest(
        job_id="",
        session_id="warm-up",
        agent_name="math",
        gateway_base_url="http://warm-up",
        session_url="http://warm-up",
        session_token="warm-up",
        model="warm-up",
        env_params={"dataset": {"problem": "1 + 1"}},
    )
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, json=answer))) as client:
        solve(SimulationStartRequest.model_validate_json(request.model_dump_json()), client).model_dump_json()
    # The first real connection would load this codec in every fork.
    importlib.import_module("encodings.idna")
    _http.append(httpx2.Client(timeout=CALL_TIMEOUT_S, trust_env=False))


def main() -> None:
    """Solve the problem of the request on stdin."""
    request = SimulationStartRequest.model_validate_json(sys.stdin.read())
    http = _http[0] if _http else httpx2.Client(timeout=CALL_TIMEOUT_S, trust_env=False)
    try:
        result = solve(request, http)
    except openai.OpenAIError as error:
        result = SimulationStartResult(
            session_id=request.session_id, status="failed", error_text=f"the model call failed: {error}"
        )
    http.close()
    print(RESULT_PREFIX + result.model_dump_json())


def solve(request: SimulationStartRequest, http: httpx2.Client) -> SimulationStartResult:
    """Ask once and say how the answer ended; whether it is right is the evaluator's to say."""
    client = openai.OpenAI(base_url=request.session_url, api_key=request.session_token, http_client=http)
    max_tokens = request.env_params.get("max_tokens")
    answer = client.chat.completions.create(
        model=request.model,
        messages=_messages(request),
        temperature=request.temperature,
        max_tokens=max_tokens if isinstance(max_tokens, int) else openai.omit,
    )
    choice = answer.choices[0]
    text = choice.message.content or ""
    stopped = text.startswith(STOP)
    truncated = stopped or choice.finish_reason == "length"
    return SimulationStartResult(
        session_id=request.session_id,
        status="truncated" if truncated else "succeeded",
        step_count=0 if stopped else 1,
        truncated=truncated,
        metrics={"finish_reason": choice.finish_reason, "answer_characters": len(text)},
    )


def _messages(request: SimulationStartRequest) -> list[ChatCompletionMessageParam]:
    instruction = request.env_params.get("instruction", INSTRUCTION)
    prompt = f"{request.dataset['problem']}\n\n{instruction}"
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    if system_prompt := request.env_params.get("system_prompt"):
        messages.insert(0, {"role": "system", "content": str(system_prompt)})
    return messages


if __name__ == "__main__":
    main()
