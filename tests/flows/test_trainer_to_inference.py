"""Trainer and inference on one bus: what is trained is what is served, token by token, over several versions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import torch

from safactory.contracts.endings import EndReason
from safactory.contracts.jobs import JobMode, JobSpec, JobSubmitted, TrainingSpec
from safactory.contracts.metrics import MetricsReported
from safactory.contracts.payload import Payload
from safactory.contracts.rollouts import RolloutReady, RolloutSample, TokenSequence
from safactory.contracts.topics import METRIC, WEIGHTS
from safactory.contracts.weights import WeightsPublished
from safactory.inference.app import create_app
from safactory.inference.seed_model import write_seed_model
from safactory.inference.settings import InferenceSettings
from safactory.infra.bus import Bus
from safactory.infra.settings import ObjectSettings
from safactory.testkit.app_server import served
from safactory.testkit.recorder import recording
from safactory.trainer.app import Trainer
from safactory.trainer.settings import CheckpointSettings, OptimiserSettings, PushSettings, TrainerSettings

TEMPERATURE = 0.7


def a_job(steps: int) -> JobSubmitted:
    spec = JobSpec(
        job_id="job",
        mode=JobMode.TRAIN,
        route="default",
        temperature=TEMPERATURE,
        max_steps=-1,
        attempts_max=1,
        session_timeout_s=60.0,
        group_deadline_s=60.0,
        environments=(),
        training=TrainingSpec(steps=steps, groups_per_step=1),
    )
    return JobSubmitted(job_id="job", spec=spec)


async def sampled(client: httpx.AsyncClient, content: str) -> tuple[TokenSequence, str]:
    """One completion as the engine reports it, and the version that it was sampled under."""
    body = {
        "model": "policy",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 6,
        "ignore_eos": True,
        "temperature": TEMPERATURE,
        "logprobs": True,
        "return_token_ids": True,
        "return_weight_versions": True,
    }
    answer = (await client.post("/v1/chat/completions", json=body)).json()
    choice, prompt = answer["choices"][0], answer["prompt_token_ids"]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    sequence = TokenSequence(
        token_ids=prompt + choice["token_ids"],
        loss_mask=[0] * len(prompt) + [1] * len(logprobs),
        logprobs=[0.0] * len(prompt) + logprobs,
        temperature=TEMPERATURE,
    )
    (span,) = choice["weight_versions"]
    return sequence, span["version"]


async def a_group(client: httpx.AsyncClient, group_id: str) -> RolloutReady:
    """Four sessions; the more often one says "up", the better."""
    samples, versions = [], set()
    for at in range(4):
        sequence, version = await sampled(client, f"row {'S F G H'[: 2 * at + 1]}")
        versions.add(version)
        reward = at / 4
        samples.append(
            RolloutSample(
                session_id=f"{group_id}-{at}",
                attempt=1,
                reason=EndReason.SUCCEEDED,
                reward=reward,
                in_loss=True,
                sequences=[sequence],
            )
        )
    (version,) = versions
    return RolloutReady(
        group_id=group_id,
        job_id="job",
        environment="game",
        group_size=4,
        sample_count=4,
        oldest_version=version,
        reward_mean=0.375,
        samples=Payload(inline=json.dumps([sample.model_dump(mode="json") for sample in samples])),
    )


@contextlib.asynccontextmanager
async def running(trainer: Trainer) -> AsyncIterator[Trainer]:
    await trainer.start()
    yield trainer
    await trainer.stop()


@pytest.mark.parametrize("lr", [3e-3, 1e-12])
async def test_over_many_versions_the_engine_samples_from_exactly_what_the_trainer_trains(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path, lr: float
) -> None:
    torch.set_num_threads(1)
    write_seed_model(tmp_path / "model", seed=5)
    app = create_app(InferenceSettings(model_dir=tmp_path / "model", grpc_port=0))
    async with served(app) as url, httpx.AsyncClient(base_url=url) as client, recording(bus, [WEIGHTS, METRIC]) as seen:
        settings = TrainerSettings(
            model_dir=tmp_path / "model",
            engines=f"127.0.0.1:{app.state.grpc_port}",
            checkpoint=CheckpointSettings(dir=tmp_path / "checkpoints"),
            push=PushSettings(retry_s=0.1),
            optimiser=OptimiserSettings(lr=lr, passes=3),
        )
        await bus.publish(a_job(steps=4))
        async with running(Trainer(settings, bus.settings, object_settings)):
            for step in range(1, 5):
                await bus.publish(await a_group(client, f"g{step}"))
                metrics = (await seen.wait_for(MetricsReported, step))[-1].values
                published = (await seen.wait_for(WeightsPublished, step))[-1]
                # Any part of the chain that disagrees (stale weights or caches, temperature, token offsets) shows here.
                assert metrics["mismatch_k3"] == pytest.approx(0.0, abs=1e-9)
                assert metrics["ess_fraction"] == pytest.approx(1.0, abs=1e-5)
                assert metrics["staleness_max"] == 0
                ready = (await client.get("/readyz")).json()
                assert (ready["weight_version"], ready["digest"]) == (f"0.{step}", published.digest)
