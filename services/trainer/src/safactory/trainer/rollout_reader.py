"""`RolloutReader`: the samples of queued groups, wherever their payload lies."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from safactory.contracts.errors import PoisonError
from safactory.contracts.rollouts import RolloutReady, RolloutSample
from safactory.infra.objects import Objects
from safactory.infra.payloads import unpack

_SAMPLES = TypeAdapter(list[RolloutSample])


async def read_samples(objects: Objects, rollout: RolloutReady) -> list[RolloutSample]:
    """Return a group's samples, checked: every list of a sequence has the length of its tokens.

    Raises:
        ObjectError: the store did not answer.
        PoisonError: the payload is not a list of samples.
    """
    text = await unpack(objects, rollout.samples)
    try:
        samples = _SAMPLES.validate_json(text)
    except ValidationError as error:
        raise PoisonError(f"group {rollout.group_id}: {error.errors(include_url=False)[:2]}") from error
    for sample in samples:
        for sequence in sample.sequences:
            lengths = {len(sequence.token_ids), len(sequence.loss_mask), len(sequence.logprobs)}
            if len(lengths) != 1 or sequence.temperature <= 0:
                raise PoisonError(f"group {rollout.group_id}, session {sample.session_id}: a malformed sequence")
    return samples
