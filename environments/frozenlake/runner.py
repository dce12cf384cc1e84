"""The FrozenLake runner: plays one map in gymnasium, one model call and one token a move.

It reads a `SimulationStartRequest` from stdin and prints one `SimulationStartResult`. `warm_up()` loads all that a
game needs, so that a worker can fork a ready runner in milliseconds; run as a script, it does without.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import gymnasium
import httpx2
import openai

from safactory.contracts.runner import RESULT_PREFIX, SimulationStartRequest, SimulationStartResult

MOVES = ("left", "down", "right", "up")
"""The words of the game, in the order of gymnasium's action numbers."""
MAX_MOVES = 6
"""Moves of a game whose row sets no `max_moves`; a wasted one counts."""
STOP = "SAFACTORY_STOP:"
"""The gateway's last answer in a session whose step budget is spent."""
CALL_TIMEOUT_S = 120.0

Place = tuple[int, int]
"""Row and column, from 0."""

_http: list[httpx2.Client] = []
"""The HTTP client that `warm_up()` built; it holds no connection."""


def warm_up() -> None:
    """Play one game against an answer made in this process, and build the client that each fork then uses."""
    answer = {
        "id": "warm-up",
        "object": "chat.completion",
        "created": 0,
        "model": "warm-up",
        "choices": [{"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "right"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    request = SimulationStartRequest(
        job_id="",
        session_id="warm-up",
        agent_name="frozenlake",
        gateway_base_url="http://warm-up",
        session_url="http://warm-up",
        session_token="warm-up",
        model="warm-up",
        env_params={"dataset": {"map": ["SFF", "FFF", "FFG"]}},
    )
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, json=answer))) as client:
        play(SimulationStartRequest.model_validate_json(request.model_dump_json()), client).model_dump_json()
    # The first real connection would load this codec in every fork.
    importlib.import_module("encodings.idna")
    _http.append(httpx2.Client(timeout=CALL_TIMEOUT_S, trust_env=False))


def main() -> None:
    """Play the game of the request on stdin."""
    request = SimulationStartRequest.model_validate_json(sys.stdin.read())
    http = _http[0] if _http else httpx2.Client(timeout=CALL_TIMEOUT_S, trust_env=False)
    try:
        result = play(request, http)
    except openai.OpenAIError as error:
        result = SimulationStartResult(
            session_id=request.session_id, status="failed", error_text=f"the model call failed: {error}"
        )
    http.close()
    print(RESULT_PREFIX + result.model_dump_json())


def play(request: SimulationStartRequest, http: httpx2.Client) -> SimulationStartResult:
    """Move until the goal, a hole, the last move, or the gateway's stop."""
    client = openai.OpenAI(base_url=request.session_url, api_key=request.session_token, http_client=http)
    row = request.dataset
    lake = [str(line) for line in row["map"]] if isinstance(row["map"], list) else []
    moves_max = row.get("max_moves", MAX_MOVES)
    env = gymnasium.make("FrozenLake-v1", desc=lake, is_slippery=False, disable_env_checker=True)
    state, _ = env.reset(seed=0)
    words: list[str] = []
    places = [divmod(int(state), len(lake[0]))]
    outcome = "out_of_moves"
    while isinstance(moves_max, int) and len(words) < moves_max:
        text = _ask(client, request, observation(lake, places[-1]))
        if text.startswith(STOP):
            outcome = "stopped"
            break
        words.append(text)
        if text not in MOVES:
            places.append(places[-1])
            continue
        state, _, ended, _, _ = env.step(MOVES.index(text))
        places.append(divmod(int(state), len(lake[0])))
        if ended:
            outcome = "goal" if lake[places[-1][0]][places[-1][1]] == "G" else "hole"
            break
    env.close()
    return SimulationStartResult(
        session_id=request.session_id,
        status="succeeded" if outcome == "goal" else "truncated" if outcome == "stopped" else "failed",
        step_count=len(words),
        truncated=outcome == "stopped",
        metrics={"outcome": outcome, "moves": list(words), "places": [list(place) for place in places]},
    )


def observation(lake: Sequence[str], place: Place) -> str:
    """Return the prompt of one move: the map with the player in it, then what lies in each direction.

    Every word is one token of the small model's vocabulary, so words are parted by single spaces.
    """
    row, column = place
    cells = [["P" if (r, c) == place else letter for c, letter in enumerate(line)] for r, line in enumerate(lake)]
    around = {
        word: _letter(lake, (row + down, column + right))
        for word, (down, right) in {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}.items()
    }
    words = [word for line in cells for word in ("row", *line)]
    return " ".join([*words, *(word for pair in around.items() for word in pair)])


def _letter(lake: Sequence[str], place: Place) -> str:
    row, column = place
    return lake[row][column] if 0 <= row < len(lake) and 0 <= column < len(lake[row]) else "W"


def _ask(client: openai.OpenAI, request: SimulationStartRequest, prompt: str) -> str:
    answer = client.chat.completions.create(
        model=request.model,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=1,
        temperature=request.temperature,
    )
    return (answer.choices[0].message.content or "").strip()


if __name__ == "__main__":
    main()
