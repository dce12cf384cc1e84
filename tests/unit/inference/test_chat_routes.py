from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI

from safactory.inference.app import create_app
from safactory.inference.engine import Engine
from safactory.inference.settings import InferenceSettings
from safactory.testkit.app_server import served

HELLO = [{"role": "user", "content": "row P F H"}]


@pytest.fixture
async def app(settings: InferenceSettings) -> FastAPI:
    return create_app(settings.model_copy(update={"batch_max": 1, "queue_max": 1}))


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with served(app) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def ask(client: httpx.AsyncClient, **changes: object) -> httpx.Response:
    body: dict[str, object] = {"model": "policy", "messages": HELLO, "max_tokens": 4, "ignore_eos": True} | changes
    return await client.post("/v1/chat/completions", json=body)


def events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_an_answer_has_what_was_asked_for_and_nothing_more(client: httpx.AsyncClient) -> None:
    plain = (await ask(client)).json()
    assert set(plain["choices"][0]) == {"index", "message", "finish_reason"}
    assert "prompt_token_ids" not in plain
    assert plain["choices"][0]["finish_reason"] == "length"
    assert plain["usage"]["completion_tokens"] == 4
    assert plain["usage"]["total_tokens"] == plain["usage"]["prompt_tokens"] + 4

    asked = (
        await ask(client, return_token_ids=True, return_weight_versions=True, logprobs=True, top_logprobs=3)
    ).json()
    choice = asked["choices"][0]
    assert len(asked["prompt_token_ids"]) == asked["usage"]["prompt_tokens"]
    assert len(choice["token_ids"]) == 4
    assert choice["weight_versions"] == [{"version": "0.0", "start": 0, "end": 4}]
    assert [len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]] == [3] * 4
    entry = choice["logprobs"]["content"][0]
    assert bytes(entry["bytes"]).decode() == entry["token"]
    assert -20 < entry["logprob"] < 0


async def test_logprobs_are_under_the_sampling_distribution(client: httpx.AsyncClient, app: FastAPI) -> None:
    size = app.state.engine.served.model.config.vocab_size
    for temperature, top_k in ((1.0, 0), (0.5, 0), (2.0, 5)):
        answer = await ask(client, logprobs=True, top_logprobs=20, temperature=temperature, top_k=top_k, max_tokens=1)
        content = answer.json()["choices"][0]["logprobs"]["content"][0]
        total = sum(math.exp(entry["logprob"]) for entry in content["top_logprobs"])
        assert len(content["top_logprobs"]) == (top_k or min(size, 20))
        assert total == pytest.approx(1.0, abs=1e-3)


async def test_a_stream_says_the_same_as_a_whole_answer_with_the_same_seed(client: httpx.AsyncClient) -> None:
    extras = {"return_token_ids": True, "return_weight_versions": True, "logprobs": True, "seed": 3, "max_tokens": 6}
    whole = (await ask(client, **extras)).json()
    streamed = await ask(client, **extras, stream=True, stream_options={"include_usage": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    first, *middle, usage = events(streamed.text)
    assert first["prompt_token_ids"] == whole["prompt_token_ids"]
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    choices = [event["choices"][0] for event in middle]
    assert all(event["usage"] is None for event in (first, *middle))
    assert "".join(choice["delta"]["content"] for choice in choices) == whole["choices"][0]["message"]["content"]
    assert [token for choice in choices for token in choice["token_ids"]] == whole["choices"][0]["token_ids"]
    logprobs = [entry for choice in choices for entry in choice["logprobs"]["content"]]
    assert logprobs == whole["choices"][0]["logprobs"]["content"]
    assert [choice.get("weight_versions") for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["weight_versions"] == whole["choices"][0]["weight_versions"]
    assert choices[-1]["finish_reason"] == "length"


async def test_a_stream_without_usage_has_no_chunk_without_choices(client: httpx.AsyncClient) -> None:
    assert all(event["choices"] for event in events((await ask(client, stream=True)).text))


async def test_a_stop_string_ends_the_answer_before_it(client: httpx.AsyncClient) -> None:
    text = (await ask(client, seed=11, max_tokens=30)).json()["choices"][0]["message"]["content"]
    stop = text.split()[3]
    answer = (await ask(client, seed=11, max_tokens=30, stop=stop)).json()["choices"][0]
    assert answer["finish_reason"] == "stop"
    assert answer["message"]["content"] == text[: text.index(stop)]


@pytest.mark.parametrize(
    ("changes", "status", "code", "says"),
    [
        ({"model": "other"}, 404, "model_not_found", "'other' does not exist"),
        ({"messages": []}, 400, "invalid_request", "messages"),
        ({"temperature": -1}, 400, "invalid_request", "temperature"),
        ({"n": 2}, 400, "invalid_request", "n"),
        ({"messages": [{"role": "user", "content": "up " * 600}]}, 400, "invalid_request", "context is 512"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "invalid_request", "messages.0"),
    ],
)
async def test_a_refusal_has_openai_s_shape_and_says_what_is_wrong(
    client: httpx.AsyncClient, changes: dict[str, Any], status: int, code: str, says: str
) -> None:
    for stream in (False, True):
        answer = await ask(client, **changes, stream=stream)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
        assert says in error["message"]


async def test_a_body_that_is_not_json_is_a_bad_request(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", content=b"{")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_overload_is_answered_429_with_a_time_to_come_back(client: httpx.AsyncClient, app: FastAPI) -> None:
    engine: Engine = app.state.engine
    running = asyncio.create_task(ask(client, max_tokens=450))
    await until(lambda: engine.depth == (1, 0))
    waiting = asyncio.create_task(ask(client))
    await until(lambda: engine.depth == (1, 1))
    refused = await ask(client)
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(refused.headers["retry-after"]) >= 1
    assert {(await running).status_code, (await waiting).status_code} == {200}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_ends_its_generation(
    client: httpx.AsyncClient, app: FastAPI, stream: bool
) -> None:
    engine: Engine = app.state.engine
    body = {"model": "policy", "messages": HELLO, "max_tokens": 480, "ignore_eos": True, "stream": stream}

    async def read() -> None:
        async with (
            httpx.AsyncClient(base_url=client.base_url) as own,
            own.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            async for _ in answer.aiter_bytes():
                pass

    reading = asyncio.create_task(read())
    await until(lambda: engine.depth == (1, 0) and engine.tokens_sampled > 3)
    reading.cancel()
    await until(lambda: engine.depth == (0, 0))
    assert engine.tokens_sampled < 400


async def test_a_client_that_hangs_up_while_waiting_never_runs(client: httpx.AsyncClient, app: FastAPI) -> None:
    engine: Engine = app.state.engine
    running = asyncio.create_task(ask(client, max_tokens=450))
    await until(lambda: engine.depth == (1, 0))
    async with httpx.AsyncClient(base_url=client.base_url) as own:
        waiting = asyncio.create_task(ask(own, max_tokens=7))
        await until(lambda: engine.depth == (1, 1))
        waiting.cancel()
        await until(lambda: engine.depth == (1, 0))
    await running
    assert engine.tokens_sampled == 450


async def test_openai_s_own_client_can_talk_to_it(client: httpx.AsyncClient) -> None:
    async with AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="none") as openai:
        listed = await openai.models.list()
        assert [model.id for model in listed.data] == ["policy"]
        whole = await openai.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "up"}], max_tokens=3, logprobs=True, seed=1
        )
        assert whole.choices[0].logprobs is not None
        chunks = await openai.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": "up"}], max_tokens=3, stream=True, seed=1
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
        assert text == whole.choices[0].message.content


async def test_health_routes_name_the_served_version(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).status_code == 200
    ready = (await client.get("/readyz")).json()
    assert (ready["model"], ready["weight_version"]) == ("policy", "0.0")
    assert "inference_tokens_sampled" in (await client.get("/metrics")).text
