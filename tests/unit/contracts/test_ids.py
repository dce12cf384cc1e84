"""Identities: in order of time, and never shared by two different things."""

from __future__ import annotations

import itertools
import random
import uuid

import pytest

from safactory.contracts.ids import WeightVersion, derived_id, group_id_of, new_session_id


def test_a_session_id_is_a_uuid_of_version_7() -> None:
    for _ in range(200):
        made = uuid.UUID(new_session_id())
        assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_a_session_id_begins_with_its_milliseconds() -> None:
    assert new_session_id(0x0123456789AB).startswith("01234567-89ab-7")


def test_session_ids_sort_by_the_time_of_their_making() -> None:
    moments = random.Random(0).sample(range(2**48), 200)
    made = {moment: new_session_id(moment) for moment in moments}
    assert [made[moment] for moment in sorted(moments)] == sorted(made.values())


def test_session_ids_of_one_millisecond_differ() -> None:
    assert len({new_session_id(1) for _ in range(1000)}) == 1000


def test_two_different_tasks_never_share_a_group() -> None:
    parts = itertools.product(("job", "job1"), (0, 1, 11), ("ab", "abc"), (0, 1, 11), (0, 1, 11))
    groups = {group_id_of(*part): part for part in parts}
    assert len(groups) == 2 * 3 * 2 * 3 * 3


def test_the_same_task_is_always_the_same_group() -> None:
    assert group_id_of("job", 0, "ab", 3, 1) == group_id_of("job", 0, "ab", 3, 1)
    assert group_id_of("job", 0, "ab", 3, 1) == "8ba39f9a-e8e1-5a39-ae40-eaa747efa470", "derived ids are on the wire"


def test_where_one_part_ends_is_part_of_a_derived_id() -> None:
    parts = [("a", "b"), ("a|b",), ("ab",), ("a", "b", ""), ("1:a|1:b",), ("a", ""), ("", "a"), ("a",)]
    assert len({derived_id(*part) for part in parts}) == len(parts)


def test_weight_versions_are_ordered_by_epoch_then_step() -> None:
    ordered = [WeightVersion(epoch=epoch, step=step) for epoch, step in ((0, 0), (0, 2), (0, 10), (1, 0), (2, 1))]
    shuffled = random.Random(0).sample(ordered, len(ordered))
    assert sorted(shuffled) == ordered
    assert max(shuffled) >= ordered[-1] > min(shuffled)


def test_a_weight_version_is_read_as_it_is_written() -> None:
    version = WeightVersion(epoch=3, step=17)
    assert WeightVersion.parse(str(version)) == version


@pytest.mark.parametrize("text", ["", "3", "a.b", "1.", ".1", "v1.2"])
def test_what_is_no_weight_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"weight version|invalid literal"):
        WeightVersion.parse(text)
