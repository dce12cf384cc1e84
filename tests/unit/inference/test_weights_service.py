from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import torch

from safactory.contracts.ids import WeightVersion
from safactory.contracts.rpc.v1 import weights_pb2, weights_pb2_grpc
from safactory.contracts.weight_manifest import manifest_digest
from safactory.inference.engine import Engine
from safactory.inference.generation import GenerationRequest
from safactory.inference.model_dir import digest_of, read_tensors
from safactory.inference.staged_weights import StagedWeights
from safactory.inference.weights_service import WeightsService, start_weights_server


@dataclass
class Update:
    """A version as a trainer would send it."""

    manifest: weights_pb2.Manifest
    data: dict[str, bytes]

    def chunks(self, size: int = 10_000) -> Iterator[weights_pb2.PushRequest]:
        for name, data in self.data.items():
            for offset in range(0, len(data), size):
                yield weights_pb2.PushRequest(
                    version=self.manifest.version, name=name, offset=offset, data=data[offset : offset + size]
                )

    def commit(self) -> weights_pb2.CommitRequest:
        return weights_pb2.CommitRequest(version=self.manifest.version, digest=self.manifest.digest)

    def verify(self) -> weights_pb2.VerifyRequest:
        return weights_pb2.VerifyRequest(version=self.manifest.version)


def an_update(engine: Engine, model_dir: Path, step: int, *, scale: float = 1.5, epoch: int = 0) -> Update:
    tensors = read_tensors(model_dir, engine.served.model.config)
    data = {name: (tensor * scale).numpy().tobytes() for name, tensor in tensors.items()}
    entries = [
        weights_pb2.TensorEntry(
            name=name,
            dtype="F32",
            shape=tensors[name].shape,
            bytes=len(value),
            sha256=hashlib.sha256(value).hexdigest(),
        )
        for name, value in data.items()
    ]
    manifest = weights_pb2.Manifest(
        model="policy",
        version=weights_pb2.WeightVersion(epoch=epoch, step=step),
        tensors=entries,
        digest=manifest_digest(entries),
    )
    return Update(manifest, data)


@pytest.fixture
async def service(engine: Engine) -> WeightsService:
    return WeightsService(engine, "policy", torch.float32, "cpu")


@pytest.fixture
async def stub(service: WeightsService) -> AsyncIterator[weights_pb2_grpc.WeightsAsyncStub]:
    server, port = await start_weights_server(service, "127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield weights_pb2_grpc.WeightsStub(channel)  # type: ignore[misc]
    await server.stop(grace=0)


async def push(stub: weights_pb2_grpc.WeightsAsyncStub, update: Update) -> weights_pb2.CommitResponse:
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
    pushed = await stub.Push(update.chunks())
    assert (pushed.tensors, pushed.bytes) == (len(update.data), sum(map(len, update.data.values())))
    verified = await stub.Verify(update.verify())
    assert (verified.match, verified.digest, list(verified.mismatched)) == (True, update.manifest.digest, [])
    return await stub.Commit(update.commit())


async def refused(call: grpc.aio.UnaryUnaryCall[object, object] | object, says: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=says) as error:
        await call  # type: ignore[misc]
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_push_changes_what_is_served_only_at_commit(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    first = await stub.GetStatus(weights_pb2.GetStatusRequest())
    assert (first.serving.epoch, first.serving.step, first.commits) == (0, 0, 0)
    assert first.serving_digest == digest_of(read_tensors(model_dir, engine.served.model.config))
    update = an_update(engine, model_dir, 1)
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
    await stub.Push(update.chunks())
    await stub.Verify(update.verify())
    staged = await stub.GetStatus(weights_pb2.GetStatusRequest())
    assert (staged.serving_digest, staged.staged.step) == (first.serving_digest, 1)
    await stub.Commit(update.commit())
    after = await stub.GetStatus(weights_pb2.GetStatusRequest())
    assert (after.serving.step, after.serving_digest, after.commits) == (1, update.manifest.digest, 1)
    assert not after.HasField("staged")
    expected = read_tensors(model_dir, engine.served.model.config)["model.norm.weight"] * 1.5
    assert torch.equal(engine.served.model.norm_D, expected)


async def test_a_commit_in_mid_generation_gives_two_spans(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    generation = engine.submit(GenerationRequest([1, 2, 3], 400, ignore_eos=True))
    while len(generation.token_ids) < 5:
        await asyncio.sleep(0.001)
    await push(stub, an_update(engine, model_dir, 1))
    await generation.whole()
    assert [span.version for span in generation.spans] == ["0.0", "0.1"]
    assert (generation.spans[0].end, generation.spans[1].end) == (generation.spans[1].start, 400)


async def test_versions_only_grow_by_epoch_then_step(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    await push(stub, an_update(engine, model_dir, 5))
    for update in (an_update(engine, model_dir, 4), an_update(engine, model_dir, 5, scale=2.0)):
        await refused(stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest)), "not newer than 0.5")
    await push(stub, an_update(engine, model_dir, 1, epoch=1, scale=2.0))
    assert engine.served.version == WeightVersion(epoch=1, step=1)


async def test_the_served_version_with_its_own_digest_is_accepted_again(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 5)
    await push(stub, update)
    await push(stub, update)
    await stub.Commit(update.commit())
    assert engine.swaps == 1


async def test_a_cut_push_leaves_the_serving_version_and_nothing_staged(
    stub: weights_pb2_grpc.WeightsAsyncStub, service: WeightsService, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))

    async def stalling() -> AsyncIterator[weights_pb2.PushRequest]:
        yield next(update.chunks())
        await asyncio.sleep(60)

    call = stub.Push(stalling())
    # A call that is cancelled before it reached the server would cut nothing.
    async with asyncio.timeout(5):
        while not service.received_bytes:
            await asyncio.sleep(0.01)
    call.cancel()
    async with asyncio.timeout(5):
        while (await stub.GetStatus(weights_pb2.GetStatusRequest())).HasField("staged"):
            await asyncio.sleep(0.01)
    await refused(stub.Commit(update.commit()), "not staged")
    assert engine.served.version == WeightVersion()
    await push(stub, update)


async def test_bytes_that_differ_do_not_verify_and_cannot_be_committed(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    name = "model.layers.0.mlp.up_proj.weight"
    update.data[name] = bytes([update.data[name][0] ^ 1]) + update.data[name][1:]
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
    await stub.Push(update.chunks())
    verified = await stub.Verify(update.verify())
    assert (verified.match, list(verified.mismatched)) == (False, [name])
    assert verified.digest != update.manifest.digest
    await refused(stub.Commit(update.commit()), "not verified")
    assert engine.served.version == WeightVersion()


async def test_a_stream_that_ends_before_all_bytes_came_is_refused_and_nothing_stays_staged(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    whole = list(update.chunks())
    name = "model.layers.0.mlp.up_proj.weight"
    update.data[name] = update.data[name][:-4]
    for sent, missing in ((list(update.chunks()), 4), (whole[:-1], len(whole[-1].data))):
        await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
        await refused(stub.Push(iter(sent)), rf"\b{missing} bytes are missing")
        assert not (await stub.GetStatus(weights_pb2.GetStatusRequest())).HasField("staged")
        await refused(stub.Commit(update.commit()), "not staged")
    assert engine.served.version == WeightVersion()


def test_missing_bytes_do_not_verify_either(engine: Engine, model_dir: Path) -> None:
    update = an_update(engine, model_dir, 1)
    staged = StagedWeights(update.manifest, engine.served.model.config)
    *first, last = update.chunks()
    for chunk in first:
        staged.write(chunk.name, chunk.offset, chunk.data)
    found = staged.verify()
    assert (found.match, found.mismatched, staged.verified_digest) == (False, [last.name], "")
    assert staged.missing_bytes == len(last.data)


async def test_verified_bytes_that_are_not_committed_by_their_digest_stay_out(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
    await stub.Push(update.chunks())
    await refused(stub.Commit(update.commit()), "not verified")
    await stub.Verify(update.verify())
    await refused(
        stub.Commit(weights_pb2.CommitRequest(version=update.manifest.version, digest="0" * 64)), "not verified"
    )
    await stub.Commit(update.commit())


async def test_a_tensor_sent_twice_or_out_of_order_or_unknown_is_refused(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    chunks = list(update.chunks())
    unknown = weights_pb2.PushRequest(version=update.manifest.version, name="lm_head.weight", data=b"1234")
    for sent, says in (
        ([*chunks, chunks[0]], "does not continue"),
        ([next(chunk for chunk in chunks if chunk.offset)], "does not continue"),
        ([unknown], "not in the manifest"),
    ):
        await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
        await refused(stub.Push(iter(sent)), says)
        await refused(stub.Verify(update.verify()), "not staged")


async def test_a_manifest_that_does_not_fit_the_model_is_refused(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    manifests = {}
    for says in ("missing", "twice", "has shape", "its shape needs", "F64", "digest is not", "served here is"):
        manifests[says] = an_update(engine, model_dir, 1).manifest
    manifests["missing"].tensors.pop()
    manifests["twice"].tensors.append(manifests["twice"].tensors[0])
    manifests["has shape"].tensors[0].shape[0] += 1
    manifests["its shape needs"].tensors[0].bytes += 4
    manifests["F64"].tensors[0].dtype = "F64"
    manifests["digest is not"].digest = "0" * 64
    manifests["served here is"].model = "other"
    for says, manifest in manifests.items():
        await refused(stub.Prepare(weights_pb2.PrepareRequest(manifest=manifest)), says)
    assert not (await stub.GetStatus(weights_pb2.GetStatusRequest())).HasField("staged")


async def test_a_push_that_stalls_keeps_nobody_else_from_pushing(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    first, second = an_update(engine, model_dir, 1), an_update(engine, model_dir, 2)
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=first.manifest))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stalling() -> AsyncIterator[weights_pb2.PushRequest]:
        chunks = first.chunks()
        yield next(chunks)
        begun.set()
        await go_on.wait()
        yield next(chunks)

    stalled = stub.Push(stalling())
    await begun.wait()
    await push(stub, second)
    go_on.set()
    await refused(stalled, "has been replaced")
    assert engine.served.version == WeightVersion(step=2)


async def test_nothing_can_be_written_after_it_was_hashed(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    last = list(update.chunks())[-1]
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
    await stub.Push(update.chunks())
    assert (await stub.Verify(update.verify())).match
    await refused(stub.Push(iter([last])), "has been verified")


async def test_abort_drops_what_is_staged_and_answers_the_same_when_there_is_nothing(
    stub: weights_pb2_grpc.WeightsAsyncStub, engine: Engine, model_dir: Path
) -> None:
    update = an_update(engine, model_dir, 1)
    await stub.Prepare(weights_pb2.PrepareRequest(manifest=update.manifest))
    for _ in range(2):
        await stub.Abort(weights_pb2.AbortRequest(version=update.manifest.version))
    assert not (await stub.GetStatus(weights_pb2.GetStatusRequest())).HasField("staged")
    await refused(stub.Push(update.chunks()), "not staged")
