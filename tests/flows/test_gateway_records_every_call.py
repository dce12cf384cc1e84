"""The gateway over real HTTP, with the official client, a real broker and a fake model server that can fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
import yaml
from pydantic import SecretStr

from safactory.contracts.sessions import SessionSealed
from safactory.contracts.steps import StepRecorded, StepStatus
from safactory.gateway.app import create_app
from safactory.gateway.settings import GatewaySettings
from safactory.infra.bus import Bus
from safactory.infra.session_tokens import SessionClaims, TokenSettings, sign
from safactory.infra.settings import BusSettings, ObjectSettings
from safactory.testkit.app_server import served
from safactory.testkit.fake_engine import FakeEngine, serving
from safactory.testkit.ports import free_port
from safactory.testkit.recorder import Recorder, recording

KEY = "k" * 32
SESSION = "01936f5e-8c4e-7b1a-9d2f-000000000001"


def token(max_steps: int = -1, attempt: int = 1, route: str = "default") -> str:
    claims = SessionClaims(
        session_id=SESSION,
        attempt=attempt,
        job_id="j",
        group_id="g",
        environment="e",
        route=route,
        max_steps=max_steps,
    )
    return sign(claims, KEY)


class House:
    """One gateway, its engine, and a recorder of the bus."""

    def __init__(self, url: str, engine: FakeEngine, recorder: Recorder) -> None:
        self.url = url
        self.engine = engine
        self.recorder = recorder

    def client(self, api_key: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1/sessions/{SESSION}", api_key=api_key, max_retries=0)

    async def ask(self, text: str, *, max_steps: int = -1) -> str | None:
        async with self.client(token(max_steps)) as client:
            answer = await client.chat.completions.create(model="default", messages=[{"role": "user", "content": text}])
            return answer.choices[0].message.content


@contextlib.asynccontextmanager
async def gateway(
    bus: Bus, objects: ObjectSettings, tmp_path: Path, *, base_url: str, allow_sessionless: bool = False
) -> AsyncIterator[str]:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        yaml.safe_dump({"llm_routes": {"default": {"base_url": base_url, "model": "fake", "capture_tokens": True}}})
    )
    settings = GatewaySettings(
        grpc_port=free_port(), config=config, silence_timeout_s=1.0, allow_sessionless=allow_sessionless
    )
    wal = bus.settings.model_copy(update={"wal_dir": tmp_path / "gateway-wal"})
    app = create_app(settings, wal, objects, TokenSettings(key=SecretStr(KEY)))
    async with served(app) as url:
        yield url


@pytest.fixture
async def house(bus: Bus, object_settings: ObjectSettings, tmp_path: Path) -> AsyncIterator[House]:
    engine = FakeEngine(script=lambda messages: "hello")
    with serving(engine) as base_url:
        async with gateway(bus, object_settings, tmp_path, base_url=base_url) as url, recording(bus) as recorder:
            yield House(url, engine, recorder)


async def test_a_call_is_answered_and_recorded_with_tokens_logprobs_and_weight_version(house: House) -> None:
    assert await house.ask("hi there") == "hello"
    (step,) = await house.recorder.wait_for(StepRecorded)
    assert (step.status, step.seq, step.attempt, step.finish_reason) == (StepStatus.OK, 1, 1, "stop")
    assert step.tokens is not None and step.tokens.inline is not None
    tokens = json.loads(step.tokens.inline)
    assert tokens["completion_token_ids"] == [ord(c) for c in "hello"]
    assert tokens["logprobs"] == [-0.5] * 5
    assert [(s.version, s.start, s.end) for s in step.weight_versions] == [("0.0", 0, 5)]
    assert (step.prompt_tokens, step.completion_tokens) == (2, 5)


async def test_a_message_is_sent_to_the_bus_once_however_often_the_agent_repeats_it(house: House) -> None:
    for _ in range(3):
        await house.ask("the same question")
    steps = await house.recorder.wait_for(StepRecorded, 3)
    carried = [len(json.loads(step.messages.inline or "[]")) for step in steps]
    assert carried == [2, 0, 0]
    assert len({tuple(step.input_hashes) for step in steps}) == 1


async def test_a_streamed_call_passes_every_event_and_is_recorded_before_done(house: House) -> None:
    async with house.client(token()) as client:
        stream = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert all(chunk.choices for chunk in chunks), "the usage that only the gateway asked for must not reach the client"
    (step,) = await house.recorder.wait_for(StepRecorded)
    assert (step.stream, step.status, step.completion_tokens) == (True, StepStatus.OK, 5)


async def test_the_budget_counts_the_session_and_then_answers_with_a_stop(house: House) -> None:
    answers = [await house.ask("move", max_steps=2) for _ in range(4)]
    assert answers[:2] == ["hello", "hello"]
    assert all((answer or "").startswith("SAFACTORY_STOP: max_steps_reached") for answer in answers[2:])
    assert len(house.engine.requests) == 2
    assert len(await house.recorder.wait_for(StepRecorded, 2)) == 2


@pytest.mark.parametrize(
    ("fault", "http_status", "status", "advice"),
    [
        ("401", 401, StepStatus.UPSTREAM_ERROR, "--api-key-env"),
        ("404", 404, StepStatus.UPSTREAM_ERROR, "--model"),
        ("429", 429, StepStatus.UPSTREAM_ERROR, "rate limit"),
        ("500", 500, StepStatus.UPSTREAM_ERROR, "its own log"),
        ("stall", 504, StepStatus.TIMEOUT, "GATEWAY_SILENCE_TIMEOUT_S"),
        ("cut", 502, StepStatus.UPSTREAM_TRUNCATED, "broke off"),
        ("garbage", 502, StepStatus.UPSTREAM_ERROR, "not JSON"),
        ("no_finish", 502, StepStatus.UPSTREAM_TRUNCATED, "no finish reason"),
    ],
)
async def test_a_failing_model_server_is_an_error_with_a_way_out_and_costs_no_budget(
    house: House, fault: str, http_status: int, status: StepStatus, advice: str
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await house.ask(f"fault:{fault}", max_steps=1)
    assert caught.value.status_code == http_status
    (step,) = await house.recorder.wait_for(StepRecorded)
    assert (step.status, step.http_status) == (status, http_status)
    assert advice in step.error
    if status is not StepStatus.UPSTREAM_TRUNCATED:
        assert await house.ask("again", max_steps=1) == "hello"


async def test_a_cut_stream_is_an_error_to_the_client_and_recorded_as_truncated(house: House) -> None:
    async with house.client(token()) as client:
        stream = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "fault:cut_stream"}], stream=True
        )
        with pytest.raises(openai.APIError, match="broke off"):
            _ = [chunk async for chunk in stream]
    (step,) = await house.recorder.wait_for(StepRecorded)
    assert step.status is StepStatus.UPSTREAM_TRUNCATED


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_hangs_up_stops_the_generation_and_is_recorded(house: House, stream: bool) -> None:
    async with house.client(token()) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(
                model="default", messages=[{"role": "user", "content": "fault:stall"}], timeout=0.3, stream=stream
            )
    (step,) = await house.recorder.wait_for(StepRecorded)
    assert (step.status, step.http_status) == (StepStatus.CLIENT_ABORT, 499)
    for _ in range(100):
        if house.engine.hang_ups:
            break
        await asyncio.sleep(0.02)
    assert house.engine.hang_ups == 1


async def test_a_closed_session_is_sealed_with_its_last_step_and_takes_no_more_calls(house: House) -> None:
    await house.ask("one")
    headers = {"Authorization": f"Bearer {token()}"}
    async with httpx.AsyncClient(base_url=f"{house.url}/v1/sessions/{SESSION}", headers=headers) as http:
        closed = await http.post("/close", json={})
        again = await http.post("/close", json={})
        status = await http.get(f"{house.url}/v1/sessions/{SESSION}")
    assert closed.json() == again.json()
    assert (closed.json()["status"], closed.json()["last_seq"]) == ("closed", 1)
    assert status.json()["status"] == "closed"
    with pytest.raises(openai.APIStatusError) as caught:
        await house.ask("two")
    assert caught.value.status_code == 409
    assert [sealed.last_seq for sealed in await house.recorder.wait_for(SessionSealed)] == [1]


@pytest.mark.parametrize("api_key", ["invented", sign(SessionClaims(
    session_id="another", attempt=1, job_id="j", group_id="g", environment="e", route="default"), KEY)])  # fmt: skip
async def test_a_token_that_is_not_this_sessions_is_refused_and_not_recorded(house: House, api_key: str) -> None:
    async with house.client(api_key) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "hi"}])
    assert house.engine.requests == []


async def test_a_session_may_call_only_its_own_route(house: House) -> None:
    async with house.client(token()) as client:
        with pytest.raises(openai.NotFoundError, match="may call 'default'"):
            await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}])


async def test_a_call_without_a_session_is_refused_by_default(house: House) -> None:
    async with openai.AsyncOpenAI(base_url=f"{house.url}/v1", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.PermissionDeniedError, match="session"):
            await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "hi"}])


async def test_a_call_without_a_session_is_recorded_where_it_is_allowed(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    with serving(FakeEngine()) as base_url:
        async with (
            gateway(bus, object_settings, tmp_path, base_url=base_url, allow_sessionless=True) as url,
            recording(bus) as recorder,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
        ):
            await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "hi"}])
            (step,) = await recorder.wait_for(StepRecorded)
    assert (step.job_id, step.seq, step.status) == ("", 1, StepStatus.OK)


async def test_a_restarted_gateway_goes_on_numbering_and_keeps_the_budget(
    bus: Bus, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    with serving(FakeEngine()) as base_url:
        async with recording(bus) as recorder:
            for answered in (2, 1):
                async with gateway(bus, object_settings, tmp_path, base_url=base_url) as url:
                    house = House(url, FakeEngine(), recorder)
                    for _ in range(answered):
                        assert await house.ask("hi", max_steps=3) == "ok"
                    stop = await house.ask("hi", max_steps=3) if answered == 1 else "SAFACTORY_STOP"
            steps = await recorder.wait_for(StepRecorded, 3)
    assert [step.seq for step in steps] == [1, 2, 3]
    assert (stop or "").startswith("SAFACTORY_STOP")


async def test_calls_are_answered_while_the_broker_is_away_and_published_when_it_is_back(
    bus_settings: BusSettings, object_settings: ObjectSettings, tmp_path: Path
) -> None:
    away = bus_settings.model_copy(update={"servers": f"127.0.0.1:{free_port()}", "publish_timeout_s": 0.3})
    outbox = Bus(away, "gateway-0")
    await outbox.start()
    await outbox.publish(
        SessionSealed(
            session_id=SESSION, attempt=1, job_id="j", group_id="g", environment="e", last_seq=0, prompt_tokens=0,
            completion_tokens=0,
        )
    )  # fmt: skip
    await outbox.stop()
    assert list(away.wal_dir.glob("*.wal")), "the event must be on disk while nobody listens"
    back = Bus(bus_settings, "gateway-0")
    await back.start()
    async with recording(back) as recorder:
        assert len(await recorder.wait_for(SessionSealed)) == 1
    await back.stop()
    assert not list(away.wal_dir.glob("*.wal"))
