"""A scoring process: `python -m safactory.evaluator.scoring_process FD PARENT_PID MEMORY_BYTES_MAX`.

It takes one case at a time from a socket, runs the environment's evaluator on its main thread, and answers. It may be
killed at any moment; it dies with its parent. What evaluators print cannot reach the socket. Frames are four bytes of
length, then JSON; the first answer, sent before any case, says that it is ready.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path

from safactory.contracts.errors import EvaluatorError
from safactory.contracts.runner import SimulationStartRequest
from safactory.evaluator.evaluation import EvaluationRequest, EvaluationSpec, evaluated
from safactory.evaluator.rule_file import RuleFile
from safactory.evaluator.scoring_case import ScoringAnswer, ScoringCase
from safactory.evaluator.verdict import Verdict, verdict_of

HEADER_BYTES = 4
ERROR_CHARACTERS_MAX = 2000
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer cases until the parent closes its end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _die_with_parent(int(sys.argv[2]))
    memory_bytes = int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    files: dict[str, RuleFile] = {}
    _send(channel, ScoringAnswer())
    while (body := _receive(channel)) is not None:
        _send(channel, answer(ScoringCase.model_validate_json(body), files))


def answer(case: ScoringCase, files: dict[str, RuleFile]) -> ScoringAnswer:
    """Score one case; whatever its evaluator raises becomes the answer's error."""
    try:
        return ScoringAnswer(verdict=_verdict(case, files))
    except EvaluatorError as error:
        return ScoringAnswer(error=str(error))
    except BaseException as error:  # noqa: BLE001 - an evaluator may raise anything, SystemExit included
        return ScoringAnswer(error=_describe(error))
    finally:
        signal.alarm(0)


def _verdict(case: ScoringCase, files: dict[str, RuleFile]) -> Verdict:
    file = files.get(case.evaluator_path)
    if file is None or not file.is_current:
        file = files[case.evaluator_path] = RuleFile(Path(case.evaluator_path))
    output = file.evaluate(
        _request(case),
        EvaluationSpec(
            env_name=case.environment,
            pass_score=case.pass_score,
            timeout_s=case.timeout_s,
            evaluator_path=case.evaluator_path,
        ),
        evaluated(case.trajectory),
    )
    return verdict_of(output)


def _request(case: ScoringCase) -> EvaluationRequest:
    start = SimulationStartRequest(
        job_id=case.job_id,
        session_id=case.trajectory.session_id,
        agent_name=case.environment,
        agent_id=case.trajectory.session_id,
        group_id=case.group_id,
        gateway_base_url="",
        model=case.route,
        env_params={"dataset": case.row},
    )
    return EvaluationRequest.model_construct(**dict(start), start_result=case.start_result)


def _describe(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raised {type(error).__name__}{place}: {error}"[:ERROR_CHARACTERS_MAX]


def _receive(channel: socket.socket) -> bytes | None:
    header = _exactly(channel, HEADER_BYTES)
    return None if header is None else _exactly(channel, int.from_bytes(header, "big"))


def _exactly(channel: socket.socket, wanted: int) -> bytes | None:
    body = bytearray()
    while len(body) < wanted:
        chunk = channel.recv(wanted - len(body))
        if not chunk:
            return None
        body += chunk
    return bytes(body)


def _send(channel: socket.socket, message: ScoringAnswer) -> None:
    body = message.model_dump_json().encode()
    channel.sendall(len(body).to_bytes(HEADER_BYTES, "big") + body)


def _die_with_parent(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        raise SystemExit("the parent is already gone")


if __name__ == "__main__":
    main()
