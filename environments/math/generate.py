"""Make a dataset of reasoning-gym tasks: `python generate.py OUT.jsonl [--rows-a-task N] [--seed S] [--tasks …]`.

Rows are `problem`, `answer` and `metadata` (which names the task); the tasks are mixed, so that any first part of the
file has some of each.

    python generate.py datasets/reasoning_gym.jsonl --rows-a-task 10 --seed 0
    python generate.py datasets/smoke.jsonl --rows-a-task 1 --seed 1 --tasks chain_sum gcd simple_equations
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import reasoning_gym

TASKS = (
    "basic_arithmetic",
    "chain_sum",
    "simple_equations",
    "gcd",
    "lcm",
    "fraction_simplification",
    "products",
    "decimal_arithmetic",
    "power_function",
    "bitwise_arithmetic",
    "base_conversion",
    "simple_geometry",
    "number_sequence",
    "leg_counting",
    "letter_counting",
    "number_sorting",
    "spell_backward",
    "calendar_arithmetic",
    "time_intervals",
    "countdown",
    "mini_sudoku",
)
"""Short to state, with an answer that can be checked, and from easy to hard for a small model."""
OPTIONS: dict[str, dict[str, object]] = {"fraction_simplification": {"styles": ("plain",)}}
"""Where a task can ask for several notations of one answer, it asks for the plainest."""


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows-a-task", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="names of reasoning-gym tasks")
    arguments = parser.parse_args()
    columns = [_rows(task, arguments.rows_a_task, arguments.seed) for task in arguments.tasks]
    lines = [line for mixed in zip(*columns, strict=True) for line in mixed]
    arguments.out.write_text("".join(lines))
    print(f"{arguments.out}: {len(lines)} rows of {len(columns)} tasks")


def _rows(task: str, count: int, seed: int) -> list[str]:
    entries = reasoning_gym.create_dataset(task, size=count, seed=seed, **OPTIONS.get(task, {}))
    return [
        json.dumps({"problem": entry["question"], "answer": entry["answer"], "metadata": entry["metadata"]}) + "\n"
        for entry in entries
    ]


if __name__ == "__main__":
    main()
