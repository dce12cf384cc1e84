"""`KvCache`: keys and values of the running sequences, one dense block a layer.

Row b of every tensor belongs to the b-th running sequence; `lengths_B` says how much of it is filled. The block grows
in steps as sequences do, and shrinks to nothing when none runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from safactory.inference.model import LayerCache

GROWTH = 64
"""Positions are added in multiples of this."""


class KvCache:
    """The cache of one batch of running sequences."""

    def __init__(self, device: str) -> None:
        self.layers: list[LayerCache] = []
        self.lengths_B = torch.zeros(0, dtype=torch.long, device=device)

    @property
    def rows(self) -> int:
        """How many sequences have a row."""
        return len(self.lengths_B)

    @property
    def capacity(self) -> int:
        """Positions of each row."""
        return self.layers[0].keys_B_G_S_E.shape[2] if self.layers else 0

    def keep(self, rows: Sequence[int]) -> None:
        """Drop every row but these."""
        at = torch.tensor(rows, dtype=torch.long, device=self.lengths_B.device)
        self.lengths_B = self.lengths_B[at]
        if not rows:
            self.layers = []
        self.layers = [LayerCache(c.keys_B_G_S_E[at], c.values_B_G_S_E[at]) for c in self.layers]

    def append(self, prefilled: list[LayerCache], lengths_B: Tensor, rows: Sequence[int]) -> None:
        """Add these rows of a prefill's keys and values as the last rows."""
        at = torch.tensor(rows, dtype=torch.long, device=self.lengths_B.device)
        added = [LayerCache(c.keys_B_G_S_E[at], c.values_B_G_S_E[at]) for c in prefilled]
        capacity = _rounded(max(self.capacity, int(lengths_B[at].max()) + 1))
        if self.layers:
            self.layers = [_joined(old, new, capacity) for old, new in zip(self.layers, added, strict=True)]
        else:
            self.layers = [
                LayerCache(_wide(c.keys_B_G_S_E, capacity), _wide(c.values_B_G_S_E, capacity)) for c in added
            ]
        self.lengths_B = torch.cat((self.lengths_B, lengths_B[at]))

    def make_room(self, length: int) -> None:
        """See to it that every row has a position of index `length`."""
        if length >= self.capacity:
            capacity = _rounded(length + 1)
            self.layers = [
                LayerCache(_wide(c.keys_B_G_S_E, capacity), _wide(c.values_B_G_S_E, capacity)) for c in self.layers
            ]


def _rounded(length: int) -> int:
    return -(-length // GROWTH) * GROWTH


def _wide(value_B_G_S_E: Tensor, capacity: int) -> Tensor:
    """Pad with zeros, or cut what lies beyond the capacity: only padding does."""
    return functional.pad(value_B_G_S_E, (0, 0, 0, capacity - value_B_G_S_E.shape[2]))


def _joined(old: LayerCache, new: LayerCache, capacity: int) -> LayerCache:
    return LayerCache(
        torch.cat((_wide(old.keys_B_G_S_E, capacity), _wide(new.keys_B_G_S_E, capacity))),
        torch.cat((_wide(old.values_B_G_S_E, capacity), _wide(new.values_B_G_S_E, capacity))),
    )
