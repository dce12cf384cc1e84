"""How a runner's exit becomes a `RunOutcome`: one reason, and one sentence that tells a person the way out.

It judges the run, never the answer: whether the agent was right is the evaluator's to say, outside the sandbox.
"""

from __future__ import annotations

import json
import signal

from safactory.contracts.endings import EndReason
from safactory.contracts.errors import RunnerError
from safactory.contracts.runner import LaunchSpec, RunOutcome, SimulationStartResult, parse_result
from safactory.runtime_worker.runtimes.base import RunnerExit
from safactory.runtime_worker.session_folder import RESULT_BYTES_MAX

SHELL_CODES_FROM = 126
"""Exit codes from here on say that a command could not be run, or was killed, and are no runner's verdict."""

_REASON_OF_STATUS = {
    "succeeded": EndReason.SUCCEEDED,
    "failed": EndReason.FAILED,
    "truncated": EndReason.TRUNCATED_STEPS,
    "environment_error": EndReason.ENVIRONMENT_ERROR,
}
_TOKEN_LIMITS = frozenset({"tokens", "max_tokens", "length", "context_length", "context_window"})


def outcome_of(ended: RunnerExit, launch: LaunchSpec, session_id: str, result_file: str) -> RunOutcome:
    """Judge a runner that ran: by its deadline, then its exit code, then its result."""
    reason, cause, result = _judge(ended, launch, session_id, result_file)
    return RunOutcome(
        reason=reason,
        cause=cause,
        result=result,
        exit_code=ended.exit_code if ended.exit_code >= 0 and not ended.timed_out else None,
        wall_s=ended.wall_s,
        stdout_bytes=ended.stdout_bytes,
        stderr_tail=ended.stderr_tail,
        warm=ended.warm,
    )


def _judge(
    ended: RunnerExit, launch: LaunchSpec, session_id: str, result_file: str
) -> tuple[EndReason, str, SimulationStartResult | None]:
    if ended.timed_out:
        cause = f"the runner was killed at its deadline after {ended.wall_s:.1f} s: raise session_timeout_s or mend it"
        return EndReason.TIMEOUT, cause, None
    if ended.exit_code < 0:
        cause = f"the runner was ended by {_signal_name(-ended.exit_code)}{_last_words(ended)}"
        return EndReason.AGENT_ERROR, cause, None
    if launch.result_mode == "exit_code" and ended.exit_code < SHELL_CODES_FROM:
        return (EndReason.SUCCEEDED if ended.exit_code == 0 else EndReason.FAILED), "", None
    if ended.exit_code != 0:
        cause = f"the runner exited with {ended.exit_code}{_last_words(ended)}"
        return EndReason.AGENT_ERROR, f"{cause}: one that ends well, also without success, exits with 0", None
    try:
        result = _result(ended, session_id, result_file)
    except RunnerError as error:
        return EndReason.AGENT_ERROR, f"the runner {error}{_cut(ended, launch)}", None
    reason = _REASON_OF_STATUS[result.status]
    if result.status == "truncated" and _hit_token_limit(result):
        reason = EndReason.TRUNCATED_TOKENS
    return reason, result.error_text or "", result


def _result(ended: RunnerExit, session_id: str, result_file: str) -> SimulationStartResult:
    """Read the one result from both places: the same one twice is fine, two that differ are not."""
    try:
        text = "\n".join(part for part in (ended.stdout, _one_line(result_file)) if part)
        result = parse_result(text, session_id)
        written = result.model_dump_json()
        # NaN, infinity and lone surrogates are readable to Python, and to nobody further down the line.
        json.dumps(result.model_dump(), allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RunnerError(f"printed a result that is not plain JSON: {error}") from error
    if len(written) > RESULT_BYTES_MAX:
        raise RunnerError(f"printed a result of {len(written)} bytes: at most {RESULT_BYTES_MAX}, the rest into files")
    return result


def _one_line(text: str) -> str:
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _hit_token_limit(result: SimulationStartResult) -> bool:
    return any(str(result.metrics.get(name)) in _TOKEN_LIMITS for name in ("truncate_reason", "finish_reason"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # most real-time signals have no name


def _cut(ended: RunnerExit, launch: LaunchSpec) -> str:
    if ended.stdout_bytes <= launch.stdout_bytes_max:
        return ""
    return f" (of its {ended.stdout_bytes} bytes of stdout, {launch.stdout_bytes_max} were kept)"


def _last_words(ended: RunnerExit) -> str:
    lines = ended.stderr_tail.strip().splitlines()
    return f" ({lines[-1][:300]})" if lines else ""
