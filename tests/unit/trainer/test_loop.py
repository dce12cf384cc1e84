from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from safactory.contracts.errors import ServiceError
from safactory.contracts.ids import WeightVersion
from safactory.contracts.jobs import JobCancelled, JobMode, JobResumed, JobSpec, JobSubmitted, TrainingSpec
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.payload import Payload
from safactory.contracts.rollouts import RolloutDropped
from safactory.contracts.topics import METRIC, ROLLOUT, WEIGHTS
from safactory.contracts.weights import WeightsPublished
from safactory.infra.bus import Bus
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.testkit.recorder import Recorder, recording
from safactory.trainer.app import Trainer
from safactory.trainer.checkpoints import Checkpoints, TrainerState
from safactory.trainer.policy import Policy
from safactory.trainer.settings import CheckpointSettings, OptimiserSettings, PushSettings, TrainerSettings
from safactory.trainer.weight_update import WeightUpdate
from tests.unit.trainer.conftest import ModelServer, a_rollout

Make = Callable[[], Awaitable[ModelServer]]


def a_job(steps: int, groups_per_step: int = 2, *, job_id: str = "job", max_staleness: int = 4) -> JobSubmitted:
    training = TrainingSpec(steps=steps, groups_per_step=groups_per_step, max_staleness=max_staleness)
    spec = JobSpec(
        job_id=job_id,
        mode=JobMode.TRAIN,
        route="default",
        temperature=1.0,
        max_steps=-1,
        attempts_max=1,
        session_timeout_s=60.0,
        group_deadline_s=60.0,
        environments=(),
        training=training,
    )
    return JobSubmitted(job_id=job_id, spec=spec)


class House:
    """A bus with its readers, one model server, and trainers that come and go."""

    def __init__(self, bus: Bus, recorder: Recorder, server: ModelServer, settings: TrainerSettings) -> None:
        self.bus = bus
        self.recorder = recorder
        self.server = server
        self.settings = settings
        self.object_settings = ObjectSettings()

    @contextlib.asynccontextmanager
    async def trainer(self, **changes: object) -> AsyncIterator[Trainer]:
        settings = self.settings.model_copy(update=changes)
        trainer = Trainer(settings, self.bus.settings, self.object_settings)
        await trainer.start()
        try:
            yield trainer
        finally:
            await trainer.stop()

    async def steps(self, count: int) -> list[MetricsReported]:
        return await self.recorder.wait_for(MetricsReported, count)

    def state(self) -> TrainerState:
        checkpoints = Checkpoints(self.settings.checkpoint.dir, 2)
        latest = checkpoints.latest()
        assert latest is not None
        return checkpoints.read_state(latest)


@pytest.fixture
async def house(
    bus: Bus,
    bus_settings: BusSettings,
    object_settings: ObjectSettings,
    settings: TrainerSettings,
    make_model_server: Make,
) -> AsyncIterator[House]:
    server = await make_model_server()
    initial = Policy(settings, settings.model_dir)
    server.digest = WeightUpdate("policy", WeightVersion(), initial.tensors()).digest
    async with recording(bus, [ROLLOUT, WEIGHTS, METRIC]) as recorder:
        house = House(bus, recorder, server, settings.model_copy(update={"engines": server.address}))
        house.object_settings = object_settings
        yield house


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_job_gets_its_steps_and_each_of_them_is_published_and_measured(house: House) -> None:
    await house.bus.publish(a_job(steps=3))
    async with house.trainer() as trainer:
        for at in range(8):
            await house.bus.publish(a_rollout(f"g{at}", seed=at))
        metrics = await house.steps(3)
        await until(lambda: len(trainer.loop.queue.consumed) == 8)
        trainer.check_training()
    published = await house.recorder.wait_for(WeightsPublished, 3)
    assert [(m.run_id, m.source, m.step) for m in metrics] == [("job", "trainer", step) for step in (1, 2, 3)]
    assert [(str(p.version), p.run_id, p.step) for p in published] == [
        ("0.1", "job", 1),
        ("0.2", "job", 2),
        ("0.3", "job", 3),
    ]
    assert house.server.versions == ["0.1", "0.2", "0.3"]
    assert published[-1].digest == house.server.digest
    assert published[-1].bytes == sum(map(len, house.server.tensors.values()))
    assert published[-1].checkpoint.endswith("version-0.3")
    asked_for = {
        *("loss", "reward_mean", "entropy", "clip_fraction_low", "clip_fraction_high", "ratio_mean", "mismatch_k3"),
        *("ess_fraction", "grad_norm", "staleness_mean", "staleness_max", "tokens", "samples", "groups"),
        *("equal_reward_fraction", "step_s", "push_s", "idle_s", "idle_fraction", "lr"),
    }
    assert asked_for <= metrics[0].values.keys()
    assert (metrics[2].values["groups"], metrics[2].values["samples"], metrics[2].values["reward_mean"]) == (2, 4, 0.5)
    assert (metrics[2].values["staleness_max"], metrics[2].values["staleness_count_2"]) == (2, 2)


async def test_the_learning_rate_falls_over_a_jobs_steps(house: House) -> None:
    optimiser = OptimiserSettings(lr=1e-3, lr_final_fraction=0.1)
    await house.bus.publish(a_job(steps=3, groups_per_step=1))
    async with house.trainer(optimiser=optimiser):
        for at in range(3):
            await house.bus.publish(a_rollout(f"g{at}", seed=at))
        metrics = await house.steps(3)
    assert [m.values["lr"] for m in metrics] == pytest.approx([1e-3, 5.5e-4, 1e-4])


async def test_groups_that_came_before_their_job_are_not_lost(house: House) -> None:
    async with house.trainer() as trainer:
        for at in range(2):
            await house.bus.publish(a_rollout(f"g{at}"))
        await until(lambda: trainer.loop.queue.waiting("job") == 2)
        await house.bus.publish(a_job(steps=1))
        await house.steps(1)


async def test_a_group_that_is_too_old_is_dropped_aloud_and_the_bound_counts_from_its_oldest_token(
    house: House,
) -> None:
    await house.bus.publish(a_job(steps=5, groups_per_step=1, max_staleness=1))
    async with house.trainer():
        for step in range(3):
            await house.bus.publish(a_rollout(f"g{step}", oldest=f"0.{step}"))
            await house.steps(step + 1)
        await house.bus.publish(a_rollout("stale", oldest="0.1"))
        await house.bus.publish(a_rollout("future", oldest="0.9"))
        await house.bus.publish(a_rollout("fit", oldest="0.2"))
        metrics = await house.steps(4)
        dropped = await house.recorder.wait_for(RolloutDropped, 2)
    assert {(d.group_id, d.reason) for d in dropped} == {("stale", "stale"), ("future", "stale")}
    assert metrics[3].values["staleness_max"] == 1


async def test_after_a_restart_no_group_is_trained_twice_and_none_is_lost(house: House) -> None:
    await house.bus.publish(a_job(steps=4))
    async with house.trainer() as trainer:
        for at in range(3):
            await house.bus.publish(a_rollout(f"g{at}", seed=at))
        await house.steps(1)
        await until(lambda: trainer.loop.queue.waiting("job") == 1)
        trained = set(trainer.loop.queue.consumed)
    (left,) = {"g0", "g1", "g2"} - trained
    assert set(house.state().consumed) == trained
    async with house.trainer() as trainer:
        await until(lambda: trainer.loop.queue.waiting("job") == 1)
        assert [group.rollout.group_id for group in trainer.loop.queue.of_job("job")] == [left]
        await house.bus.publish(a_rollout("g0"))
        await house.bus.publish(a_rollout("g3"))
        await house.steps(2)
        await until(lambda: trainer.loop.queue.waiting("job") == 0)
        assert sorted(trainer.loop.queue.consumed) == ["g0", "g1", "g2", "g3"]
        assert trainer.loop.version == WeightVersion(step=2)
    assert house.server.versions == ["0.1", "0.2"]


async def test_a_restart_from_older_weights_than_are_served_opens_an_epoch_and_trains_their_groups_again(
    house: House,
) -> None:
    checkpoint = CheckpointSettings(dir=house.settings.checkpoint.dir, every_steps=2)
    await house.bus.publish(a_job(steps=4, groups_per_step=1))
    async with house.trainer(checkpoint=checkpoint):
        for at in range(3):
            await house.bus.publish(a_rollout(f"g{at}"))
        await house.steps(3)
    assert (str(house.state().version), len(house.state().consumed)) == ("0.2", 2)
    async with house.trainer(checkpoint=checkpoint) as trainer:
        await until(lambda: house.server.versions[-1] == "1.3")
        assert len(trainer.loop.queue.consumed) == 3
        await house.bus.publish(a_rollout("g3", oldest="1.3"))
        await until(lambda: house.server.versions[-1] == "1.4")
    assert house.server.versions == ["0.1", "0.2", "0.3", "1.2", "1.3", "1.4"]
    assert str(house.state().version) == "1.4"


async def test_a_version_whose_announcement_was_lost_is_announced_after_the_restart(house: House) -> None:
    await house.bus.publish(a_job(steps=1))
    async with house.trainer():
        for at in range(2):
            await house.bus.publish(a_rollout(f"g{at}"))
        (first,) = await house.recorder.wait_for(WeightsPublished, 1)
    async with house.trainer():
        again = (await house.recorder.wait_for(WeightsPublished, 2))[1]
    assert again.event_id == first.event_id
    assert (again.step, again.digest, again.committed) == (1, first.digest, [house.server.address])
    assert house.server.versions == ["0.1"]


async def test_a_server_with_other_weights_gets_the_trainer_s_at_the_start(house: House) -> None:
    house.server.digest = "of other weights"
    async with house.trainer() as trainer:
        await until(lambda: house.server.versions == ["1.0"])
        await until(lambda: trainer.loop.version == WeightVersion(epoch=1))


async def test_while_no_server_takes_a_version_training_waits_and_says_why(house: House) -> None:
    house.server.failing = "Verify"
    await house.bus.publish(a_job(steps=2, groups_per_step=1))
    async with house.trainer() as trainer:
        for at in range(2):
            await house.bus.publish(a_rollout(f"g{at}"))
        await until(lambda: house.server.calls["Verify"] >= 3)
        with pytest.raises(ServiceError, match=r"no model server took version 0\.1"):
            trainer.check_training()
        assert house.recorder.of(WeightsPublished) == []
        house.server.failing = ""
        published = await house.recorder.wait_for(WeightsPublished, 2)
        await house.steps(2)
        trainer.check_training()
    assert [str(p.version) for p in published] == ["0.1", "0.2"]


async def test_training_waits_at_the_start_for_a_server_that_answers(house: House) -> None:
    house.server.failing = "GetStatus"
    await house.bus.publish(a_job(steps=1, groups_per_step=1))
    await house.bus.publish(a_rollout("g"))
    async with house.trainer() as trainer:
        await until(lambda: house.server.calls["GetStatus"] >= 2)
        with pytest.raises(ServiceError, match="no model server answers"):
            trainer.check_training()
        assert house.recorder.of(MetricsReported) == []
        house.server.failing = ""
        await house.steps(1)


async def test_weights_are_pushed_every_few_steps_and_always_after_the_last(house: House) -> None:
    await house.bus.publish(a_job(steps=5, groups_per_step=1))
    async with house.trainer(push=PushSettings(every_steps=2, retry_s=0.05)):
        for at in range(5):
            await house.bus.publish(a_rollout(f"g{at}"))
        await house.recorder.wait_for(WeightsPublished, 3)
    assert house.server.versions == ["0.2", "0.4", "0.5"]


async def test_a_cancelled_job_gets_no_step_even_when_the_trainer_starts_late_and_goes_on_when_resumed(
    house: House,
) -> None:
    await house.bus.publish(a_job(steps=1))
    await house.bus.publish(JobCancelled(job_id="job", reason="a person said so"))
    await house.bus.publish(a_job(steps=1, job_id="other"))
    for at in range(2):
        await house.bus.publish(a_rollout(f"g{at}"))
        await house.bus.publish(a_rollout(f"h{at}", job_id="other"))
    async with house.trainer() as trainer:
        metrics = await house.steps(1)
        await until(lambda: len(trainer.loop.queue.consumed) == 4)
        assert [m.run_id for m in metrics] == ["other"]
        await house.bus.publish(JobResumed(job_id="job", resumption="1"))
        await until(lambda: not trainer.loop.jobs.is_over("job"))
        for at in range(2, 4):
            await house.bus.publish(a_rollout(f"g{at}"))
        assert [m.run_id for m in await house.steps(2)] == ["other", "job"]


async def test_a_group_that_nobody_can_read_is_dropped_and_the_others_are_trained_on(house: House) -> None:
    broken = json.dumps([{"session_id": "s"}])
    await house.bus.publish(a_job(steps=1))
    async with house.trainer():
        await house.bus.publish(a_rollout("bad").model_copy(update={"samples": Payload(inline=broken)}))
        await house.bus.publish(a_rollout("g0"))
        (dropped,) = await house.recorder.wait_for(RolloutDropped, 1)
        await house.bus.publish(a_rollout("g1"))
        await house.steps(1)
    assert (dropped.group_id, dropped.reason) == ("bad", "unreadable")
