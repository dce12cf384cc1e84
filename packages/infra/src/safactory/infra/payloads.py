"""Payloads: small content stays in its event, large content goes to the object store before the event does."""

from __future__ import annotations

from safactory.contracts.payload import INLINE_BYTES_MAX, Payload
from safactory.infra.objects import Objects


async def pack(objects: Objects, text: str, *, prefix: str = "payloads") -> Payload:
    """Return a payload of JSON text, stored durably when it is over `INLINE_BYTES_MAX`.

    Raises:
        ObjectError: the store refused or did not answer.
    """
    if len(text) <= INLINE_BYTES_MAX // 4 or len(text.encode()) <= INLINE_BYTES_MAX:
        return Payload(inline=text)
    return Payload(ref=await objects.put(text.encode(), prefix=prefix))


async def unpack(objects: Objects, payload: Payload) -> str:
    """Return a payload's JSON text.

    Raises:
        ObjectError: the store refused or did not answer, or gave other bytes.
    """
    if payload.inline is not None:
        return payload.inline
    assert payload.ref is not None, "a payload has one of the two"
    return (await objects.get(payload.ref)).decode()
