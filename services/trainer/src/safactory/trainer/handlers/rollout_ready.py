"""`rollout.ready`: a group waits until a step takes it; until then its record stays uncommitted."""

from __future__ import annotations

from safactory.contracts.rollouts import RolloutReady
from safactory.infra.consumer import Delivery
from safactory.trainer.group_queue import QueuedGroup
from safactory.trainer.loop import TrainingLoop


def on_rollout_ready(event: RolloutReady, delivery: Delivery, loop: TrainingLoop) -> None:
    """Queue a group."""
    if loop.queue.add(QueuedGroup(event, delivery.release)):
        delivery.hold()
        loop.wake()
