"""`assemble()`: one attempt's trajectory from its steps, with every message's body in its place.

A step carries only the bodies that its attempt had not sent before, so the bodies of all steps are gathered first.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue, TypeAdapter, ValidationError

from safactory.contracts.errors import PoisonError
from safactory.contracts.messages import Message
from safactory.contracts.payload import Payload
from safactory.contracts.steps import StepRecorded
from safactory.contracts.trajectory import Trajectory, TrajectoryStep
from safactory.infra.objects import Objects
from safactory.infra.payloads import unpack

_MESSAGES = TypeAdapter(list[Message])
_OBJECT = TypeAdapter(dict[str, JsonValue])


async def assemble(objects: Objects, steps: Sequence[StepRecorded]) -> Trajectory:
    """Return the trajectory of one attempt's steps.

    Raises:
        ObjectError: a body could not be fetched.
        PoisonError: a step names a message that no step carries, or holds what is not JSON of its kind.
    """
    bodies: dict[str, Message] = {}
    ordered = sorted(steps, key=lambda step: step.seq)
    for step in ordered:
        text = await unpack(objects, step.messages)
        try:
            bodies.update({message.sha256: message for message in _MESSAGES.validate_json(text)})
        except ValidationError as error:
            raise PoisonError(f"the messages of step {step.seq} are no messages: {error}") from error
    return Trajectory(
        session_id=ordered[0].session_id,
        attempt=ordered[0].attempt,
        steps=[await _step(objects, step, bodies) for step in ordered],
    )


async def read_object(objects: Objects, payload: Payload) -> dict[str, JsonValue]:
    """Return a payload that holds one JSON object.

    Raises:
        ObjectError: it could not be fetched.
        PoisonError: it is no JSON object.
    """
    text = await unpack(objects, payload)
    try:
        return _OBJECT.validate_json(text)
    except ValidationError as error:
        raise PoisonError(f"not a JSON object: {error}") from error


async def _step(objects: Objects, step: StepRecorded, bodies: dict[str, Message]) -> TrajectoryStep:
    try:
        messages = [bodies[digest] for digest in step.input_hashes]
        response = bodies[step.output_hash] if step.output_hash else None
    except KeyError as error:
        raise PoisonError(f"step {step.seq} names message {error.args[0]}, whose body no step carries") from error
    return TrajectoryStep(
        seq=step.seq,
        status=step.status,
        messages=messages,
        response=response,
        finish_reason=step.finish_reason,
        parameters=await read_object(objects, step.parameters),
    )
