"""A tiny model, samples, and a model server's side of a weight push with faults on demand."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest
import torch
import transformers

from safactory.contracts.endings import EndReason
from safactory.contracts.ids import VersionSpan
from safactory.contracts.payload import Payload
from safactory.contracts.rollouts import RolloutReady, RolloutSample, TokenSequence
from safactory.contracts.rpc.v1 import weights_pb2, weights_pb2_grpc
from safactory.trainer.policy import Policy
from safactory.trainer.settings import CheckpointSettings, OptimiserSettings, PushSettings, TrainerSettings

VOCABULARY = 12


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.3,
        dtype="float32",
        bos_token_id=None,
        eos_token_id=2,
    )
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture
def settings(model_dir: Path, tmp_path: Path) -> TrainerSettings:
    return TrainerSettings(
        model_dir=model_dir,
        engines="",
        checkpoint=CheckpointSettings(dir=tmp_path / "checkpoints"),
        push=PushSettings(timeout_s=5.0, retry_s=0.05),
        optimiser=OptimiserSettings(lr=1e-2),
    )


@pytest.fixture
def policy(settings: TrainerSettings) -> Policy:
    return Policy(settings, settings.model_dir)


def a_sequence(
    prompt: list[int], completion: list[int], logprobs: list[float] | None = None, temperature: float = 1.0
) -> TokenSequence:
    """One turn; a logprob of −1 a token unless they are given."""
    given = [-1.0] * len(completion) if logprobs is None else logprobs
    return TokenSequence(
        token_ids=prompt + completion,
        loss_mask=[0] * len(prompt) + [1] * len(completion),
        logprobs=[0.0] * len(prompt) + given,
        temperature=temperature,
        weight_versions=[VersionSpan(version="0.0", start=len(prompt), end=len(prompt) + len(completion))],
    )


def a_sample(reward: float, *sequences: TokenSequence, reason: EndReason = EndReason.SUCCEEDED) -> RolloutSample:
    return RolloutSample(
        session_id="s", attempt=1, reason=reason, reward=reward, in_loss=reason.in_loss, sequences=list(sequences)
    )


def a_rollout(group_id: str, *, job_id: str = "job", oldest: str = "0.0", seed: int = 0) -> RolloutReady:
    """A group of two samples of which the first did better."""
    samples = [
        a_sample(1.0, a_sequence([1, 2, 3 + seed % 5], [4, 5])),
        a_sample(0.0, a_sequence([1, 2, 3 + seed % 5], [6]), reason=EndReason.FAILED),
    ]
    return RolloutReady(
        group_id=group_id,
        job_id=job_id,
        environment="game",
        group_size=2,
        sample_count=2,
        oldest_version=oldest,
        reward_mean=0.5,
        samples=Payload(inline=json.dumps([sample.model_dump(mode="json") for sample in samples])),
    )


class ModelServer(weights_pb2_grpc.WeightsServicer):
    """What a model server does with a push, written from weights.proto alone."""

    def __init__(self) -> None:
        self.serving = weights_pb2.WeightVersion()
        self.digest = ""
        self.tensors: dict[str, bytes] = {}
        self.versions: list[str] = []
        self.calls: Counter[str] = Counter()
        self.failing = ""
        """The call that fails from now on."""
        self.hang_s = 0.0
        """How long Prepare takes to answer."""
        self.address = ""
        self._manifest = weights_pb2.Manifest()
        self._staged: dict[str, bytearray] = {}

    async def _maybe_fail(self, call: str, context: grpc.aio.ServicerContext[object, object]) -> None:
        self.calls[call] += 1
        if self.failing == call:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "out of order")

    async def GetStatus(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        await self._maybe_fail("GetStatus", context)
        return weights_pb2.WeightsStatus(model="policy", serving=self.serving, serving_digest=self.digest)

    async def Prepare(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        await self._maybe_fail("Prepare", context)
        await asyncio.sleep(self.hang_s)
        self._manifest, self._staged = request.manifest, {}
        return weights_pb2.PrepareResponse()

    async def Push(self, request_iterator, context):  # type: ignore[no-untyped-def]  # noqa: N802
        async for chunk in request_iterator:
            await self._maybe_fail("Push", context)
            self._staged.setdefault(chunk.name, bytearray()).extend(chunk.data)
        return weights_pb2.PushResponse()

    async def Verify(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self.calls["Verify"] += 1
        if self.failing == "Verify":
            return weights_pb2.VerifyResponse(match=False, mismatched=["model.norm.weight"])
        found = {name: hashlib.sha256(data).hexdigest() for name, data in self._staged.items()}
        match = found == {entry.name: entry.sha256 for entry in self._manifest.tensors}
        return weights_pb2.VerifyResponse(match=match, digest=self._manifest.digest)

    async def Commit(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        await self._maybe_fail("Commit", context)
        self.serving, self.digest = request.version, request.digest
        self.tensors = {name: bytes(data) for name, data in self._staged.items()}
        self.versions.append(f"{request.version.epoch}.{request.version.step}")
        return weights_pb2.CommitResponse(serving=request.version)

    async def Abort(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self.calls["Abort"] += 1
        return weights_pb2.AbortResponse()


@pytest.fixture
async def make_model_server() -> AsyncIterator[Callable[[], Awaitable[ModelServer]]]:
    servers: list[grpc.aio.Server] = []

    async def make() -> ModelServer:
        model_server, server = ModelServer(), grpc.aio.server()
        weights_pb2_grpc.add_WeightsServicer_to_server(model_server, server)
        model_server.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        servers.append(server)
        return model_server

    yield make
    for server in servers:
        await server.stop(grace=0)
