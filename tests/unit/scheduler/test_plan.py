"""Which groups a job has, in which order, and how many of them may be admitted."""

from __future__ import annotations

import itertools

import pytest
from pydantic import JsonValue

from safactory.contracts.jobs import JobMode, TrainingSpec
from safactory.scheduler.plan import admissible, groups, without
from safactory.testkit.builders import a_job_spec, an_environment_spec, an_object_ref

MAZE = an_environment_spec(name="maze", task_count=3, samples=2, tasks=an_object_ref(sha256="a" * 64))
MATH = an_environment_spec(name="math", task_count=1, samples=4, tasks=an_object_ref(sha256="b" * 64))


def test_an_evaluation_has_each_task_once_and_environments_take_turns() -> None:
    found = list(groups(a_job_spec(environments=(MAZE, MATH))))
    assert [(group.environment_index, group.row, group.epoch, group.size) for group in found] == [
        (0, 0, 0, 2), (1, 0, 0, 4), (0, 1, 0, 2), (0, 2, 0, 2),
    ]  # fmt: skip
    assert sum(group.size for group in found) == a_job_spec(environments=(MAZE, MATH)).planned


def test_training_passes_over_the_dataset_without_end_and_no_group_comes_twice() -> None:
    spec = a_job_spec(mode=JobMode.TRAIN, training=TrainingSpec(steps=1), environments=(MAZE, MATH))
    found = list(itertools.islice(groups(spec), 40))
    assert [group.epoch for group in found] == sorted(group.epoch for group in found)
    assert {(group.environment_index, group.row, group.epoch) for group in found[:8]} == {
        (index, row, epoch) for epoch in (0, 1) for index, row in ((0, 0), (0, 1), (0, 2), (1, 0))
    }
    assert len({group.group_id for group in found}) == 40


def test_a_plan_is_the_same_whenever_it_is_made() -> None:
    spec = a_job_spec(environments=(MAZE, MATH))
    assert list(groups(spec)) == list(groups(spec))


def test_other_jobs_datasets_and_environments_have_other_groups() -> None:
    changed = MAZE.model_copy(update={"tasks": an_object_ref(sha256="c" * 64)})
    specs = [
        a_job_spec(environments=(MAZE,)), a_job_spec(job_id="job-2", environments=(MAZE,)),
        a_job_spec(environments=(changed,)), a_job_spec(environments=(MATH, MAZE)),
    ]  # fmt: skip
    ids = [{group.group_id for group in groups(spec) if group.size == 2} for spec in specs]
    assert len(set.union(*ids)) == sum(len(one) for one in ids) == 12


@pytest.mark.parametrize(
    ("steps_done", "groups_per_step", "max_staleness", "expected"),
    [(0, 8, 0, 8), (0, 8, 4, 40), (3, 8, 0, 32), (3, 8, 4, 64), (10, 1, 1, 12)],
)
def test_groups_are_admitted_for_the_step_in_hand_and_as_far_ahead_as_they_may_age(
    steps_done: int, groups_per_step: int, max_staleness: int, expected: int
) -> None:
    assert admissible(steps_done, groups_per_step, max_staleness) == expected


def test_no_group_within_the_bound_is_older_than_allowed_when_its_turn_comes() -> None:
    for staleness, per_step in itertools.product(range(4), (1, 3)):
        for steps_done in range(5):
            last = admissible(steps_done, per_step, staleness) - 1
            assert last // per_step - steps_done <= staleness


def test_a_row_loses_its_ground_truth_and_nothing_else() -> None:
    row: dict[str, JsonValue] = {"q": 1, "answer": 2, "metadata": {"answer": 3}}
    assert without(row, ("answer", "gold")) == {"q": 1, "metadata": {"answer": 3}}
    assert without({"q": 1}, ()) == {"q": 1}
