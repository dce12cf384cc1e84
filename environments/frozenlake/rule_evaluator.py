"""The FrozenLake evaluator: replays the model's recorded answers on the row's own map.

It believes the gateway's record and nothing that the runner says. Reaching the goal scores 10. Any other game scores
up to 1 for the share of its answers that are moves at all, and one that fell in no hole up to 3 more for the share of
the way that it came nearer to the goal. Without the first, a model of random weights would spend half of a short
training on finding out which words are moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from safactory.evaluator.evaluation import EvaluatedTrajectory, EvaluationRequest, EvaluationSpec

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""Word → change of (row, column)."""
MAX_MOVES = 6
"""Moves of a game whose row sets no `max_moves`; a wasted one counts."""
STOP = "SAFACTORY_STOP:"
"""What the gateway says in a model's place when the step budget is spent; it is no move."""
GOAL_SCORE = 10.0
NEARNESS_SCORE_MAX = 3.0
LEGALITY_SCORE_MAX = 1.0

Place = tuple[int, int]


def evaluate(
    request: EvaluationRequest, _spec: EvaluationSpec, trajectory: EvaluatedTrajectory
) -> dict[str, JsonValue]:
    """Score one game."""
    row = request.dataset
    lake, moves_max = row["map"], row.get("max_moves", MAX_MOVES)
    if not isinstance(lake, list) or not isinstance(moves_max, int):
        raise ValueError(f"the row has no map of rows, or a max_moves that is no number: {row}")
    rows = [str(line) for line in lake]
    answers = [step.response.strip() for step in trajectory.steps if step.status == "ok"]
    words = [word for word in answers if not word.startswith(STOP)][:moves_max]
    places = replay(rows, words)
    outcome = outcome_of(rows, places[-1])
    made = len(places) - 1
    return {
        "score": score_of(rows, places, words[:made]),
        "reason": f"{outcome} after {made} moves",
        "artifacts": {"outcome": outcome, "moves": list(words[:made]), "places": [list(place) for place in places]},
    }


def replay(lake: Sequence[str], words: Iterable[str]) -> list[Place]:
    """Return where the player stood, start included, until the goal, a hole or the last word."""
    places = [(0, 0)]
    for word in words:
        if lake[places[-1][0]][places[-1][1]] in "GH":
            break
        places.append(moved(lake, places[-1], word))
    return places


def moved(lake: Sequence[str], place: Place, word: str) -> Place:
    """Return where a word leads; a wall, or a word that is no move, leads nowhere."""
    down, right = MOVES.get(word, (0, 0))
    row, column = place[0] + down, place[1] + right
    inside = 0 <= row < len(lake) and 0 <= column < len(lake[row])
    return (row, column) if inside else place


def outcome_of(lake: Sequence[str], place: Place) -> str:
    """Return how a game is over that stops in this place."""
    return {"G": "goal", "H": "hole"}.get(lake[place[0]][place[1]], "out_of_moves")


def score_of(lake: Sequence[str], places: Sequence[Place], words: Sequence[str]) -> float:
    """Return 10 for the goal, else 0–1 for answers that are moves and, outside a hole, 0–3 for coming nearer.

    `places` is where the player stood: at the start, and after each of the words.
    """
    outcome = outcome_of(lake, places[-1])
    if outcome == "goal":
        return GOAL_SCORE
    legality = LEGALITY_SCORE_MAX * sum(word in MOVES for word in words) / max(len(words), 1)
    if outcome == "hole":
        return legality
    distances = [moves_to_goal(lake, place) for place in places]
    return legality + NEARNESS_SCORE_MAX * (distances[0] - min(distances)) / distances[0]


def moves_to_goal(lake: Sequence[str], start: Place) -> int:
    """Return the fewest moves from a place to the goal around the holes.

    Raises:
        ValueError: there is no way.
    """
    distance = {start: 0}
    waiting = deque([start])
    while waiting:
        place = waiting.popleft()
        if lake[place[0]][place[1]] == "G":
            return distance[place]
        for word in MOVES:
            after = moved(lake, place, word)
            if after not in distance and lake[after[0]][after[1]] != "H":
                distance[after] = distance[place] + 1
                waiting.append(after)
    raise ValueError(f"the goal of {list(lake)} cannot be reached from {start}")
