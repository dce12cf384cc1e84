from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from safactory.contracts.errors import UpstreamError
from safactory.contracts.ids import WeightVersion
from safactory.inference.engine import Engine, Served
from safactory.inference.generation import FinishReason, Generation, GenerationRequest
from safactory.inference.model import Qwen3
from safactory.inference.model_dir import read_tensors
from safactory.inference.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def a_request(prompt: list[int], max_tokens: int, **changes: object) -> GenerationRequest:
    fields: dict[str, object] = {"sampling": GREEDY, "ignore_eos": True} | changes
    return GenerationRequest(prompt, max_tokens, **fields)  # type: ignore[arg-type]


def greedy(model: Qwen3, prompt: list[int], count: int) -> list[int]:
    """What the model says token by token, without any cache."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits, _ = model.prefill(torch.tensor([ids]), torch.tensor([len(ids)]), keep_cache=False)
            ids.append(int(logits[0].argmax()))
    return ids[len(prompt) :]


def changed(model_dir: Path, engine: Engine, version: WeightVersion) -> Served:
    """The engine's model with every matrix negated: another model by far."""
    config = engine.served.model.config
    tensors = {name: -tensor if tensor.ndim > 1 else tensor for name, tensor in read_tensors(model_dir, config).items()}
    return Served(Qwen3(config, tensors, torch.float32, "cpu"), version, "other")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_sequences_that_join_and_leave_get_what_they_would_get_alone(engine: Engine) -> None:
    prompts = [[1, 4, 9, 8, 2], [3, 3], [7, 1, 5, 2, 9, 10, 11, 4, 6], [2], [6, 6, 6]]
    lengths = [40, 3, 90, 1, 17]
    generations: list[Generation] = []
    for prompt, length in zip(prompts, lengths, strict=True):
        generations.append(engine.submit(a_request(prompt, length)))
        await asyncio.sleep(0.005)
    for prompt, length, generation in zip(prompts, lengths, generations, strict=True):
        whole = await generation.whole()
        assert whole.finish_reason is FinishReason.LENGTH
        assert generation.token_ids == greedy(engine.served.model, prompt, length)
        assert [info.token_id for info in whole.tokens] == generation.token_ids
    assert engine.depth == (0, 0)


async def test_a_request_for_one_token_costs_one_forward_pass_and_no_cache(engine: Engine) -> None:
    await engine.submit(a_request([1, 2, 3], 1)).whole()
    assert engine.forward_passes == 1
    assert engine._cache.capacity == 0


async def test_prompts_that_wait_together_are_prefilled_together(make_started: Callable[..., Engine]) -> None:
    engine = make_started(batch_max=8)
    # A long one keeps the engine busy while the others arrive.
    busy = engine.submit(a_request([1], 400))
    await until(lambda: engine.forward_passes > 2)
    before = engine.forward_passes
    others = [engine.submit(a_request([2, at], 1)) for at in range(7)]
    await asyncio.gather(*(other.whole() for other in others))
    await busy.whole()
    extra = engine.forward_passes - before - (400 - before)
    assert extra <= 2


async def test_an_end_of_sequence_token_stops_and_is_part_of_the_tokens_but_not_of_the_text(engine: Engine) -> None:
    (eos,) = engine.tokenizer.eos_ids
    for seed in range(40):
        request = GenerationRequest([1, 4], 50, sampling=SamplingParams(temperature=3.0, seed=seed))
        generation = engine.submit(request)
        whole = await generation.whole()
        if whole.finish_reason is FinishReason.STOP:
            assert generation.token_ids.count(eos) == 1
            assert generation.token_ids[-1] == eos
            assert "<|im_end|>" not in whole.text
            return
    pytest.fail("no sequence ended by itself")


async def test_a_swap_in_mid_generation_gives_two_spans_and_no_stale_cache(engine: Engine, model_dir: Path) -> None:
    prompts = [[1, 4, 9, 8, 2], [3, 3]]
    generations = [engine.submit(a_request(prompt, 150)) for prompt in prompts]
    await until(lambda: min(len(generation.token_ids) for generation in generations) > 5)
    old, new = engine.served, changed(model_dir, engine, WeightVersion(step=1))
    await asyncio.wrap_future(engine.swap(new))
    for prompt, generation in zip(prompts, generations, strict=True):
        await generation.whole()
        first, second = generation.spans
        assert (first.version, first.start, second.version, second.end) == ("0.0", 0, "0.1", 150)
        assert first.end == second.start
        assert generation.token_ids[: first.end] == greedy(old.model, prompt, first.end)
        so_far = prompt + generation.token_ids[: first.end]
        assert generation.token_ids[first.end :] == greedy(new.model, so_far, 150 - first.end)


async def test_an_aborted_generation_leaves_the_batch_and_the_others_go_on(engine: Engine) -> None:
    gone, stays = engine.submit(a_request([1, 2], 480)), engine.submit(a_request([3, 4], 60))
    await until(lambda: len(gone.token_ids) > 3)
    engine.abort(gone)
    await stays.whole()
    await until(lambda: engine.depth == (0, 0))
    assert len(gone.token_ids) < 480
    assert stays.token_ids == greedy(engine.served.model, [3, 4], 60)


async def test_more_than_the_queue_holds_is_refused_and_nothing_else_is(make_started: Callable[..., Engine]) -> None:
    engine = make_started(batch_max=1, queue_max=2)
    first = engine.submit(a_request([1], 300))
    await until(lambda: engine.depth == (1, 0))
    waiting = [engine.submit(a_request([2], 2)), engine.submit(a_request([3], 2))]
    with pytest.raises(UpstreamError) as refused:
        engine.submit(a_request([4], 2))
    assert refused.value.http_status == 429
    for generation in (first, *waiting):
        assert (await generation.whole()).finish_reason is FinishReason.LENGTH


async def test_a_failing_step_ends_its_sequences_and_not_the_engine(engine: Engine) -> None:
    bad = engine.submit(a_request([10_000], 5))
    with pytest.raises(UpstreamError, match="a step of the engine failed"):
        await bad.whole()
    good = engine.submit(a_request([1, 2], 3))
    assert len((await good.whole()).tokens) == 3


async def test_stopping_fails_what_is_under_way(make_started: Callable[..., Engine]) -> None:
    engine = make_started()
    generation = engine.submit(a_request([1], 480))
    await until(lambda: len(generation.token_ids) > 2)
    engine.stop()
    with pytest.raises(UpstreamError, match="stopped"):
        await generation.whole()
    with pytest.raises(UpstreamError, match="stopped"):
        engine.submit(a_request([1], 1))


async def test_updates_of_a_stream_come_token_by_token_and_cover_the_completion(engine: Engine) -> None:
    generation = engine.submit(a_request([1, 4], 12, stream=True))
    updates = [update async for update in generation.updates()]
    assert [info.token_id for update in updates for info in update.tokens] == generation.token_ids
    assert [update.finish_reason for update in updates[:-1]] == [None] * (len(updates) - 1)
    assert "".join(update.text for update in updates) == generation.text.text


async def test_generation_ends_where_the_context_does(make_started: Callable[..., Engine]) -> None:
    engine = make_started(context_max=10)
    generation = engine.submit(a_request([1, 2, 3], 100))
    assert (await generation.whole()).finish_reason is FinishReason.LENGTH
    assert len(generation.context_ids) == 10
