"""`Engine`: continuous batching in one thread.

Between two decode steps it takes in what has happened (new requests, aborts, a weight swap), prefills the waiting
prompts in one padded batch, and then decodes every running sequence by one token. Guarantees: no key or value computed
under one weight version is read under another, since a swap sends every running sequence back to be prefilled; a
request for one token costs one forward pass and no cache; at most `queue_max` requests wait.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor

from safactory.contracts.errors import UpstreamError
from safactory.contracts.ids import WeightVersion
from safactory.inference.generation import FinishReason, Generation, GenerationRequest, TokenInfo, Update
from safactory.inference.kv_cache import KvCache
from safactory.inference.model import Qwen3
from safactory.inference.sampling import alternatives, make_generator, sample
from safactory.inference.text_stream import TextStream
from safactory.inference.tokenizer import ChatTokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineLimits:
    """How much the engine takes on."""

    batch_max: int
    """Sequences that run at once."""
    queue_max: int
    """Requests that wait; one more is refused."""
    context_max: int
    """Tokens of prompt and completion together."""
    prefill_tokens_max: int = 16384
    """Padded tokens of one prefill, unless a single prompt is longer."""


@dataclass(frozen=True)
class Served:
    """What is served: replaced as one."""

    model: Qwen3
    version: WeightVersion
    digest: str


class Engine:
    """One model on one device."""

    def __init__(self, served: Served, tokenizer: ChatTokenizer, limits: EngineLimits, device: str = "cpu") -> None:
        self.served = served
        self.tokenizer = tokenizer
        self.limits = limits
        self.tokens_sampled = 0
        self.forward_passes = 0
        self.swaps = 0
        self._device = device
        self._waiting: collections.deque[Generation] = collections.deque()
        self._running: list[Generation] = []
        self._admitted: list[Generation] = []
        self._cache = KvCache(device)
        self._swap: tuple[Served, Future[float]] | None = None
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what was under way fails."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def depth(self) -> tuple[int, int]:
        """Sequences (running, waiting)."""
        return len(self._running), len(self._waiting)

    def submit(self, request: GenerationRequest) -> Generation:
        """Queue a request; call on the event loop that will await it.

        Raises:
            UpstreamError: too many wait already (429), or the engine has stopped (503).
        """
        text = TextStream(self.tokenizer.tokenizer, request.stop)
        generation = Generation(request, text, make_generator(request.sampling.seed))
        with self._wake:
            if self._stopping or not self.alive:
                raise UpstreamError("the engine has stopped", http_status=503)
            if len(self._waiting) >= self.limits.queue_max:
                raise UpstreamError(f"{self.limits.queue_max} requests wait already", http_status=429)
            self._waiting.append(generation)
            self._wake.notify()
        return generation

    def abort(self, generation: Generation) -> None:
        """Stop working for a generation that nobody waits for."""
        generation.aborted = True

    def swap(self, served: Served) -> Future[float]:
        """Serve other weights from the next step on; the result is the time in seconds without a decode step."""
        done: Future[float] = Future()
        with self._wake:
            if self._stopping or not self.alive:
                raise UpstreamError("the engine has stopped", http_status=503)
            self._swap = (served, done)
            self._wake.notify()
        return done

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._wait_for_work():
                    self._drop_aborted()
                    self._take_swap()
                    self._step(self._prefill)
                    self._step(self._decode)
        finally:
            self._fail_all("the engine has stopped")

    def _wait_for_work(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._waiting or self._running or self._swap)
            return not self._stopping

    def _step(self, work: Callable[[], list[Generation]]) -> None:
        """Do one piece of work and hand out what came of it; a failure ends the sequences, not the engine."""
        try:
            touched = work()
        except Exception as error:  # the engine outlives any of its steps
            logger.exception("a step failed; its sequences are given up")
            self._fail_all(f"a step of the engine failed: {error}")
            return
        _deliver(touched)

    def _take_swap(self) -> None:
        with self._wake:
            if self._swap is None:
                return
            (served, done), self._swap = self._swap, None
            if not done.set_running_or_notify_cancel():
                return
            began = time.perf_counter()
            self.served = served
            self.swaps += 1
            # Their keys and values are of the old weights: back to the front of the queue, in order.
            self._waiting.extendleft(reversed(self._running))
        self._running = []
        self._cache.keep([])
        done.set_result(time.perf_counter() - began)

    def _drop_aborted(self) -> None:
        with self._wake:
            if any(generation.aborted for generation in self._waiting):
                self._waiting = collections.deque(g for g in self._waiting if not g.aborted)
        self._retain(lambda generation: not generation.aborted)

    def _retain(self, wanted: Callable[[Generation], bool]) -> None:
        rows = [row for row, generation in enumerate(self._running) if wanted(generation)]
        if len(rows) < len(self._running):
            self._running = [self._running[row] for row in rows]
            self._cache.keep(rows)

    def _admit(self) -> list[Generation]:
        admitted = self._admitted
        width = 0
        with self._wake:
            while self._waiting and len(self._running) + len(admitted) < self.limits.batch_max:
                width = max(width, len(self._waiting[0].context_ids))
                if admitted and width * (len(admitted) + 1) > self.limits.prefill_tokens_max:
                    break
                admitted.append(self._waiting.popleft())
        return admitted

    def _prefill(self) -> list[Generation]:
        admitted = self._admit()
        if not admitted:
            return []
        contexts = [generation.context_ids for generation in admitted]
        width = max(map(len, contexts))
        tokens_B_T = torch.tensor([ids + [0] * (width - len(ids)) for ids in contexts], device=self._device)
        lengths_B = torch.tensor([len(ids) for ids in contexts], device=self._device)
        wanted = any(len(g.token_ids) + 1 < g.request.max_tokens for g in admitted)
        logits_B_V, caches = self.served.model.prefill(tokens_B_T, lengths_B, keep_cache=wanted)
        self._sample(admitted, logits_B_V)
        rows = [row for row, generation in enumerate(admitted) if generation.finish_reason is None]
        if rows:
            self._cache.append(caches, lengths_B, rows)
            self._running += (admitted[row] for row in rows)
        self._admitted = []
        return admitted

    def _decode(self) -> list[Generation]:
        if not self._running:
            return []
        running = list(self._running)
        self._cache.make_room(int(self._cache.lengths_B.max()))
        tokens_B = torch.tensor([generation.token_ids[-1] for generation in running], device=self._device)
        logits_B_V = self.served.model.decode(tokens_B, self._cache.lengths_B, self._cache.layers)
        self._cache.lengths_B = self._cache.lengths_B + 1
        self._sample(running, logits_B_V)
        self._retain(lambda generation: generation.finish_reason is None)
        return running

    def _sample(self, generations: Sequence[Generation], logits_B_V: Tensor) -> None:
        self.forward_passes += 1
        self.tokens_sampled += len(generations)
        params = [generation.request.sampling for generation in generations]
        drawn = sample(logits_B_V, params, [generation.generator for generation in generations])
        version = str(self.served.version)
        for row, generation in enumerate(generations):
            token, count = drawn.tokens[row], generation.request.top_logprobs
            top = alternatives(drawn.logprobs_B_V[row], count) if count else []
            info = TokenInfo(token, drawn.logprobs[row], top)
            generation.record(info, version, is_eos=token in self.tokenizer.eos_ids)
            if generation.finish_reason is None and len(generation.context_ids) >= self.limits.context_max:
                generation.finish(FinishReason.LENGTH)

    def _fail_all(self, reason: str) -> None:
        with self._wake:
            failed = [*self._running, *self._admitted, *self._waiting]
            self._waiting.clear()
            swap, self._swap = self._swap, None
        self._running, self._admitted = [], []
        self._cache.keep([])
        for generation in failed:
            generation.fail(UpstreamError(reason, http_status=503))
        _deliver(failed)
        if swap is not None:
            swap[1].set_exception(UpstreamError(reason, http_status=503))


def _deliver(generations: Sequence[Generation]) -> None:
    """Wake each waiting loop once a step, however many sequences took part in it."""
    updates = [(generation, update) for generation in generations if (update := generation.take()) is not None]
    for loop in {generation.loop for generation, _ in updates}:
        mine = [(generation, update) for generation, update in updates if generation.loop is loop]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_hand_over, mine)


def _hand_over(updates: list[tuple[Generation, Update | UpstreamError]]) -> None:
    for generation, update in updates:
        generation.deliver(update)
