"""Leases: one owner, one fence, and an end."""

from __future__ import annotations

import time

import pytest

from safactory.scheduler.lease_book import LeaseBook
from safactory.testkit.builders import a_session_leased


@pytest.fixture
def book() -> LeaseBook:
    book = LeaseBook(ttl_s=0.1)
    book.grant(a_session_leased(lease_id="a", fence=5))
    return book


def test_the_holder_can_renew_and_give_back(book: LeaseBook) -> None:
    assert book.renew("a", 5)
    taken = book.take_back("a", 5)
    assert taken is not None and taken.fence == 5
    assert len(book) == 0


@pytest.mark.parametrize(("lease_id", "fence"), [("a", 4), ("a", 6), ("b", 5), ("", 0)])
def test_who_has_another_fence_or_lease_is_fenced_out(book: LeaseBook, lease_id: str, fence: int) -> None:
    assert not book.renew(lease_id, fence)
    assert book.take_back(lease_id, fence) is None
    assert len(book) == 1


def test_a_lease_is_given_back_once(book: LeaseBook) -> None:
    assert book.take_back("a", 5)
    assert book.take_back("a", 5) is None
    assert not book.renew("a", 5)


def test_a_lease_without_a_heartbeat_runs_out(book: LeaseBook) -> None:
    assert book.expired() == []
    time.sleep(0.06)
    assert book.renew("a", 5)
    time.sleep(0.06)
    assert book.expired() == [], "it was renewed"
    time.sleep(0.06)
    assert [lease.lease_id for lease in book.expired()] == ["a"]


def test_slots_are_those_of_the_workers_that_are_alive() -> None:
    book = LeaseBook(ttl_s=0.05)
    book.seen("w0", 4)
    book.seen("w1", 2)
    book.seen("w1")
    assert book.slots == 6
    time.sleep(0.06)
    book.seen("w1")
    assert book.slots == 2, "w0 has not been seen"
    book.seen("w1", 3)
    assert book.slots == 3


def test_busy_and_offered_time_are_accounted() -> None:
    book = LeaseBook(ttl_s=10)
    book.seen("w", 4)
    book.grant(a_session_leased())
    time.sleep(0.05)
    book.account()
    assert book.busy_s == pytest.approx(0.05, abs=0.03)
    assert book.capacity_s == pytest.approx(4 * book.busy_s)
