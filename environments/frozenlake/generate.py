"""Make a dataset of distinct, solvable maps: `python generate.py OUT.jsonl --count N [--exclude OTHER.jsonl …]`.

One row is one layout, so two files made with `--exclude` share no game. There are few small layouts (51 of 3×3 can be
solved, and 50 of them are met here); asking for more than there are is refused.

    python generate.py datasets/heldout.jsonl --count 11
    python generate.py datasets/train.jsonl --count 39 --exclude datasets/heldout.jsonl
    python generate.py datasets/smoke.jsonl --count 4
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from gymnasium.envs.toy_text.frozen_lake import generate_random_map

DRAWS_MIN = 2000
"""Enough to meet all 3×3 layouts but one, which is all holes that can be."""
DRAWS_A_ROW = 20

Layout = tuple[str, ...]


def layouts(*, size: int, p: float, draws: int) -> list[Layout]:
    """Return the distinct layouts among so many draws, sorted; gymnasium gives solvable ones only."""
    return sorted({tuple(generate_random_map(size=size, p=p, seed=seed)) for seed in range(draws)})


def choose(found: Sequence[Layout], excluded: set[Layout], *, count: int, seed: int) -> list[Layout]:
    """Return so many layouts in an order that the seed gives.

    Raises:
        SystemExit: there are not so many.
    """
    shuffled = list(found)
    random.Random(seed).shuffle(shuffled)
    left = [layout for layout in shuffled if layout not in excluded]
    if len(left) < count:
        raise SystemExit(f"only {len(left)} layouts are left, not {count}: lower --count, or raise --size")
    return left[:count]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=3, help="rows and columns")
    parser.add_argument("--p", type=float, default=0.8, help="chance that a cell is ice and no hole")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which layouts are taken")
    parser.add_argument("--exclude", type=Path, nargs="*", default=[], help="files whose layouts are not used")
    arguments = parser.parse_args()
    excluded = {tuple(json.loads(line)["map"]) for path in arguments.exclude for line in path.open()}
    draws = max(DRAWS_MIN, DRAWS_A_ROW * (arguments.count + len(excluded)))
    found = layouts(size=arguments.size, p=arguments.p, draws=draws)
    chosen = choose(found, excluded, count=arguments.count, seed=arguments.seed)
    arguments.out.write_text("".join(json.dumps({"map": list(layout)}) + "\n" for layout in chosen))
    print(f"{arguments.out}: {len(chosen)} of {len(found)} distinct layouts")


if __name__ == "__main__":
    main()
