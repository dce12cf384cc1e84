"""The lowest offset that is not done."""

from __future__ import annotations

import itertools

import pytest

from safactory.infra.watermark import Watermark


def test_nothing_begun_means_everything_before_is_done() -> None:
    assert Watermark(7).next == 7


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_mark_stays_at_the_lowest_open_offset_in_any_order(order: tuple[int, ...]) -> None:
    mark = Watermark(0)
    for offset in range(4):
        mark.begin(offset)
    left = set(range(4))
    for offset in order:
        mark.done(offset)
        left.discard(offset)
        assert mark.next == min(left, default=4)


def test_a_gap_in_the_numbering_is_not_waited_for() -> None:
    mark = Watermark(0)
    mark.begin(0)
    mark.begin(5)
    mark.done(0)
    assert mark.next == 5
    mark.done(5)
    assert (mark.next, mark.reached) == (6, 6)


def test_saying_done_twice_changes_nothing() -> None:
    mark = Watermark(0)
    mark.begin(0)
    mark.done(0)
    mark.done(0)
    assert mark.next == 1
