"""The embedded engine: one transformers model, one LoRA adapter per role, every request in one running batch.

Leaves out on purpose: a cache of prefixes over requests; equal prompts that are waiting together are prefilled once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError
from mas.serving.decode import Batch, Job
from mas.serving.forward import Row, completion_logits
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion
from mas.serving.store import AdapterStore

_SETTLE_ROUNDS = 16
"""Event-loop rounds without a new request after which decoding goes on: a message needs fewer to reach its agent."""


class TransformersEngine:
    """Serves a `BaseModel` with continuous batching: a finished completion leaves the batch and is answered at once,
    and waiting ones take its place, up to `ModelOptions.max_batch` rows.

    Decoding goes on when every runnable task has had its say, so that which rows meet does not depend on timing as long
    as nothing but the engine is waited for. The model runs in one worker thread; the event loop stays free.
    """

    reads_files = False

    def __init__(self, base: BaseModel) -> None:
        self.base = base
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.dtype = base.options.dtype
        self.base_name = base.name
        self.store = AdapterStore(self)
        self.steps = 0
        self.sequences = 0
        self._waiting: deque[_Place] = deque()
        self._places: dict[Job, _Place] = {}
        self._batch = Batch(base)
        self._scores = 0
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._worker = ThreadPoolExecutor(
            1, thread_name_prefix="mas-engine", initializer=torch.set_num_threads, initargs=(base.options.threads,)
        )

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    async def load(self, version: AdapterVersion) -> None:
        """Nothing to do: the tensors of a version are what decoding reads."""

    async def unload(self, version: AdapterVersion) -> None:
        """Nothing to do."""

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self._check_open()
        self.base.limits.check_request(request)
        async with self.store.lease(request.adapter) as version:
            places = [self._place(request, seed, version) for seed in request.seeds]
            try:
                return tuple([await place.whole for place in places])
            finally:
                for place in places:
                    place.leave()

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        self._check_open()
        self.base.limits.check_stream(request)
        async with self.store.lease(request.adapter) as version:
            place = self._place(request, request.seeds[0], version, asyncio.Queue())
            assert place.pieces is not None
            try:
                finish = ""
                while not finish:
                    piece = await place.pieces.get()
                    if isinstance(piece, EngineError):
                        raise piece
                    finish = piece.finish
                    yield piece
            finally:
                place.leave()

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        async with self.store.lease(adapter) as version:
            return await self.score_version(version, prompt_ids, completion_ids)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        self._check_open()
        self.base.limits.check_score(prompt_ids, completion_ids)
        row = Row(prompt_ids, completion_ids, None if version is None else version.weights)
        self._scores += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, self._score, row)
        finally:
            self._scores -= 1

    async def close(self) -> None:
        self._closed = True
        if self._pump is not None:
            await asyncio.gather(self._pump, return_exceptions=True)
        self._worker.shutdown()
        self.store.close()

    def _score(self, row: Row) -> tuple[float, ...]:
        with torch.inference_mode():
            logits_LV = completion_logits(self.base.model, self.base.bank, [row])[0]
            tokens_L1 = torch.tensor(row.completion_ids, device=logits_LV.device)[:, None]
            logprobs = torch.log_softmax(logits_LV, -1).gather(-1, tokens_L1)[:, 0]
        return tuple(logprobs.tolist())

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")

    def _place(
        self,
        request: Request,
        seed: int,
        version: AdapterVersion | None,
        pieces: "asyncio.Queue[Generation | EngineError] | None" = None,
    ) -> "_Place":
        ref, weights = (None, None) if version is None else (version.ref, version.weights)
        place = _Place(Job(request, seed, ref, weights), asyncio.get_running_loop().create_future(), pieces)
        self._waiting.append(place)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._serve(), name="engine-batch")
        return place

    async def _serve(self) -> None:
        """Decode until nobody waits."""
        loop = asyncio.get_running_loop()
        while self._waiting or self._batch.jobs:
            await self._settle()
            new = self._take()
            try:
                done = await loop.run_in_executor(self._worker, self._run, [place.job for place in new])
            except Exception as error:  # noqa: BLE001 - the boundary: what fails with the batch is its rows, not the pump
                self._fail(EngineError(f"decoding failed: {type(error).__name__}: {error}"))
                continue
            for place in self._places.values():
                place.show()
            for job in done:
                self._places.pop(job).finish()

    def _run(self, new: list[Job]) -> list[Job]:
        """In the worker: admit, then decode until a row is done or to be shown, or somebody else wants the model."""
        done = self._batch.admit(new)
        is_streamed = any(place.pieces is not None for place in self._places.values())
        while self._batch.jobs and not done:
            done = self._batch.step()
            self.steps += 1
            if is_streamed or self._waiting or self._scores:
                break
        return done

    def _take(self) -> list["_Place"]:
        """The oldest waiting that find room in the batch."""
        taken: list[_Place] = []
        while self._waiting and len(self._places) < self.base.options.max_batch:
            place = self._waiting.popleft()
            if not place.job.is_cancelled:
                self._places[place.job] = place
                taken.append(place)
        self.sequences += len(taken)
        return taken

    def _fail(self, error: EngineError) -> None:
        """Answer all rows with the error, and begin anew with those that wait."""
        self._batch = Batch(self.base)
        for place in self._places.values():
            place.fail(error)
        self._places.clear()

    async def _settle(self) -> None:
        quiet, seen = 0, len(self._waiting)
        while quiet < _SETTLE_ROUNDS and len(self._waiting) < self.base.options.max_batch:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == seen else 0
            seen = len(self._waiting)


@dataclass(slots=True)
class _Place:
    """A completion that somebody waits for: `whole`, or `pieces` of it (at most one a token)."""

    job: Job
    whole: asyncio.Future[Generation]
    pieces: asyncio.Queue[Generation | EngineError] | None
    shown: int = 0

    def show(self) -> None:
        """Hand out what was drawn since the last time."""
        if self.pieces is not None and len(self.job.token_ids) > self.shown:
            self.pieces.put_nowait(self.job.piece(self.shown))
            self.shown = len(self.job.token_ids)

    def finish(self) -> None:
        if not self.whole.done():
            self.whole.set_result(self.job.piece())

    def fail(self, error: EngineError) -> None:
        if self.pieces is not None:
            self.pieces.put_nowait(error)
        elif not self.whole.done():
            self.whole.set_exception(error)

    def leave(self) -> None:
        """Nobody waits any longer: what is not drawn yet will not be."""
        self.job.is_cancelled = True
        if not self.whole.cancel() and not self.whole.cancelled():
            self.whole.exception()  # a failure that its request has seen on another completion
