from __future__ import annotations

from safactory.contracts.ids import WeightVersion
from safactory.contracts.payload import Payload
from safactory.contracts.rollouts import RolloutReady
from safactory.trainer.group_queue import GroupQueue, QueuedGroup


def a_group(group_id: str, released: list[str], *, oldest: str = "0.0", job_id: str = "job") -> QueuedGroup:
    rollout = RolloutReady(
        group_id=group_id,
        job_id=job_id,
        environment="game",
        group_size=2,
        sample_count=2,
        oldest_version=oldest,
        reward_mean=0.5,
        samples=Payload(inline="[]"),
    )
    return QueuedGroup(rollout, lambda: released.append(group_id))


def ids(groups: list[QueuedGroup]) -> list[str]:
    return [group.rollout.group_id for group in groups]


def test_the_oldest_weights_come_first_and_among_equals_the_first_to_arrive() -> None:
    queue = GroupQueue()
    for group_id, oldest in (("a", "0.10"), ("b", "0.9"), ("c", "1.0"), ("d", "0.9")):
        assert queue.add(a_group(group_id, [], oldest=oldest))
    assert ids(queue.trainable("job", WeightVersion(epoch=1), 99)) == ["b", "d", "a", "c"]


def test_a_group_is_taken_once_whether_it_waits_was_taken_or_was_taken_before_a_restart() -> None:
    released: list[str] = []
    queue = GroupQueue(consumed=["old"])
    assert not queue.add(a_group("old", released))
    assert queue.add(a_group("a", released))
    assert not queue.add(a_group("a", released))
    queue.remove(queue.trainable("job", WeightVersion(), 0))
    assert not queue.add(a_group("a", released))
    assert (released, queue.consumed, queue.waiting("job")) == (["a"], ["old", "a"], 0)


def test_unfit_are_those_beyond_the_bound_and_those_from_the_future() -> None:
    queue = GroupQueue()
    for step in range(8):
        queue.add(a_group(str(step), [], oldest=f"0.{step}"))
    assert ids(queue.unfit("job", WeightVersion(step=5), 2)) == ["0", "1", "2", "6", "7"]
    assert ids(queue.trainable("job", WeightVersion(step=5), 2)) == ["3", "4", "5"]


def test_jobs_do_not_mix() -> None:
    queue = GroupQueue()
    queue.add(a_group("a", [], job_id="one"))
    queue.add(a_group("b", [], job_id="two"))
    assert ids(queue.trainable("one", WeightVersion(), 0)) == ["a"]
    queue.remove(queue.of_job("one"))
    assert queue.job_ids() == ["two"]
