"""The embedded engine: one transformers model, one LoRA adapter per role, every pending request in one batch.

Leaves out on purpose: admission of new requests into a running decode, and streaming.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError
from mas.serving.decode import Job, decode
from mas.serving.forward import Row, completion_logits
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion
from mas.serving.store import AdapterStore

_SETTLE_ROUNDS = 16
"""Event-loop rounds without a new request after which a batch starts: a message needs fewer to reach its agent."""


class TransformersEngine:
    """Serves a `BaseModel`. The batch starts when every runnable task has had its say, so that its members do not
    depend on timing; the model runs in one worker thread, so that the event loop stays free."""

    reads_files = False

    def __init__(self, base: BaseModel) -> None:
        self.base = base
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.dtype = base.options.dtype
        self.base_name = base.name
        self.store = AdapterStore(self)
        self._pending: list[_Ask] = []
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._worker = ThreadPoolExecutor(
            1, thread_name_prefix="mas-engine", initializer=torch.set_num_threads, initargs=(base.options.threads,)
        )
        self.batches = 0
        self.sequences = 0

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
            return await self._decoded(request, version)

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """The whole completion as one piece."""
        self.base.limits.check_stream(request)
        yield (await self.generate(request))[0]

    async def _decoded(self, request: Request, version: AdapterVersion | None) -> tuple[Generation, ...]:
        ref, weights = (None, None) if version is None else (version.ref, version.weights)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        jobs = [Job(request, seed, ref, weights) for seed in request.seeds]
        self._pending.append(_Ask(jobs, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._drain(), name="engine-batches")
        try:
            await future
        except asyncio.CancelledError:
            for job in jobs:
                job.is_cancelled = True
            raise
        return tuple(job.generation() for job in jobs)

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
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._score, row)

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

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            await self._settle()
            asks = [ask for ask in self._take() if not ask.future.done()]
            jobs = [job for ask in asks for job in ask.jobs]
            if not jobs:
                continue
            try:
                for part in self._parts(jobs):
                    await loop.run_in_executor(self._worker, decode, self.base.model, self.base.bank, part)
            except Exception as error:  # noqa: BLE001 - the boundary: a failed batch fails its requests, not the pump
                failure = EngineError(f"decoding failed: {type(error).__name__}: {error}")
                for ask in asks:
                    ask.fail(failure)
                continue
            self.batches += 1
            self.sequences += len(jobs)
            for ask in asks:
                ask.finish()

    def _parts(self, jobs: list[Job]) -> Iterator[list[Job]]:
        """Batches of `max_batch` at most: one request for many candidates may need several."""
        size = self.base.options.max_batch
        return (jobs[start : start + size] for start in range(0, len(jobs), size))

    def _take(self) -> list["_Ask"]:
        """The oldest requests that fill one batch, at least one of them."""
        size, taken = 0, 0
        for ask in self._pending:
            size += len(ask.jobs)
            if taken and size > self.base.options.max_batch:
                break
            taken += 1
        asks, self._pending = self._pending[:taken], self._pending[taken:]
        return asks

    async def _settle(self) -> None:
        quiet, seen = 0, len(self._pending)
        while quiet < _SETTLE_ROUNDS and len(self._pending) < self.base.options.max_batch:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._pending) == seen else 0
            seen = len(self._pending)


@dataclass(frozen=True, slots=True)
class _Ask:
    """One waiting request."""

    jobs: list[Job]
    future: asyncio.Future[None]

    def finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, error: EngineError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
