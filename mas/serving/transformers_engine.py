"""The embedded engine: one transformers model, one LoRA adapter per role, every request in one running batch.

Leaves out on purpose: a cache of prefixes over time; of prompts that wait together, what they begin with in common is
read once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from mas.core.engine import AdapterRef, Generation, Grammar, Request, TokenScores
from mas.core.errors import EngineError
from mas.serving.base_measures import check_decoding
from mas.serving.decode import Batch, DecodeJob, PendingCompletion
from mas.serving.forward import ScoredRow, score_tokens
from mas.serving.grammar import Grammars, Matcher
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion, check_version
from mas.serving.store import AdapterStore

SETTLE_ROUNDS = 64
"""Event-loop rounds without a new request after which decoding continues: a message needs fewer to reach its agent."""
_MOST_LOGITS = 2**28
"""Logits of one scoring pass of several texts, at most: 1 GiB in float32."""
_log = logging.getLogger(__name__)


class TransformersEngine:
    """Serves a `BaseModel` with continuous batching: a finished completion leaves the batch and is answered at once,
    and waiting ones take its place, up to `ModelOptions.max_batch` rows.

    Decoding continues when every runnable task has run, so that which rows meet does not depend on timing as long
    as nothing but the engine is waited for. The model runs in one worker thread; the event loop stays free.

    Attributes:
        steps: decoding steps so far.
        longest_pause: rounds of the event loop after which a request still came, at most: `SETTLE_ROUNDS` must be more.
    """

    reads_files = False
    restricts = True

    def __init__(self, base: BaseModel) -> None:
        check_decoding(base)
        self.base = base
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.dtype = base.options.dtype
        self.origin = base.origin
        self._limits = base.limits
        self.store = AdapterStore(self)
        self.steps = 0
        self.longest_pause = 0
        self._waiting: deque[PendingCompletion] = deque()
        self._places: dict[DecodeJob, PendingCompletion] = {}
        self._grammars = Grammars(base.text)
        self._batch = Batch(base, self._grammars)
        self._scoring: dict[asyncio.Future[TokenScores], ScoredRow] = {}
        self._compiling: set[asyncio.Future[Matcher]] = set()
        self._scorer: asyncio.Task[None] | None = None
        self._decode_task: asyncio.Task[None] | None = None
        self._closed = False
        self._worker = ThreadPoolExecutor(
            1, thread_name_prefix="mas-engine", initializer=torch.set_num_threads, initargs=(base.options.threads,)
        )

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    async def load(self, version: AdapterVersion) -> None:
        """Check it; the tensors of a version are what decoding reads."""
        check_version(self.base.bank, version)

    async def unload(self, version: AdapterVersion) -> None:
        """Keep nothing that was made of it."""
        self.base.bank.forget(version.weights)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self._check_open()
        self._limits.check_request(request)
        async with self.store.lease(request.adapter) as version:
            return await self.generate_version(version, request)

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        self._check_open()
        places = [self._enqueue(request, seed, version) for seed in request.seeds]
        try:
            await self._compile(request.sampling.grammar)
            return tuple([await place.future for place in places])
        finally:
            for place in places:
                place.leave()

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        self._check_open()
        self._limits.check_stream(request)
        async with self.store.lease(request.adapter) as version:
            place = self._enqueue(request, request.seeds[0], version, asyncio.Queue())
            assert place.pieces is not None
            try:
                await self._compile(request.sampling.grammar)
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

    async def score_alternatives(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None, *, count: int
    ) -> TokenScores:
        async with self.store.lease(adapter) as version:
            return await self.version_scores(version, prompt_ids, completion_ids, count)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        return (await self.version_scores(version, prompt_ids, completion_ids, 0)).logprobs

    async def version_scores(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int], count: int
    ) -> TokenScores:
        """As `score_alternatives`, with a version that the store need not know."""
        self._check_open()
        self._limits.check_score(prompt_ids, completion_ids, count)
        row = ScoredRow(prompt_ids, completion_ids, None if version is None else version.weights, count)
        scored: asyncio.Future[TokenScores] = asyncio.get_running_loop().create_future()
        self._scoring[scored] = row
        if self._scorer is None or self._scorer.done():
            self._scorer = asyncio.create_task(self._score(), name="engine-scores")
        try:
            return await scored
        except Exception as error:
            raise EngineError(f"scoring failed: {type(error).__name__}: {error}") from error
        finally:
            self._scoring.pop(scored, None)

    async def _score(self) -> None:
        """Score all that waits, in passes as wide as decoding; what fails with a pass are its rows."""
        while self._scoring:
            await asyncio.sleep(0)  # callers send many requests at once
            taken = self._scorable()
            rows = [self._scoring[scored] for scored in taken]
            if not rows:
                break
            found: list[TokenScores] | Exception
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._worker, score_tokens, self.base, rows)
            except Exception as error:  # noqa: BLE001 - the boundary: it is the error of those who wait for these rows
                found = error
            for number, scored in enumerate(taken):
                self._scoring.pop(scored, None)
                if scored.done():
                    continue
                if isinstance(found, Exception):
                    scored.set_exception(found)
                else:
                    scored.set_result(found[number])

    def _scorable(self) -> list[asyncio.Future[TokenScores]]:
        """The oldest waiting scores that find room in one pass; one at least, where any waits."""
        options, vocabulary = self.base.options, self._limits.vocabulary
        widest = longest = 0
        taken: list[asyncio.Future[TokenScores]] = []
        for scored, row in self._scoring.items():
            widest = max(widest, len(row.prompt_ids) + len(row.completion_ids))
            longest, rows = max(longest, len(row.completion_ids)), len(taken) + 1
            is_wide = widest * rows > options.max_batch_tokens or longest * rows * vocabulary > _MOST_LOGITS
            if taken and (len(taken) == options.max_batch or is_wide):
                break
            taken.append(scored)
        return taken

    async def close(self) -> None:
        self._closed = True
        if self._decode_task is not None:
            await asyncio.wait([self._decode_task])
        if self._scorer is not None:
            await asyncio.wait([self._scorer])
        await asyncio.to_thread(self._worker.shutdown)
        for version in self.store.loaded():
            self.base.bank.forget(version.weights)
        self.store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")

    async def _compile(self, grammar: Grammar | None) -> None:
        """In the worker, so that the event loop stays free; nothing is admitted meanwhile (see `_wait_for_requests`).

        Raises:
            RefusedRequest: it is no grammar.
        """
        if grammar is None or self._grammars.knows(grammar):
            return
        compiling = asyncio.get_running_loop().run_in_executor(self._worker, self._grammars.matcher, grammar)
        self._compiling.add(compiling)
        compiling.add_done_callback(self._compiling.discard)
        await compiling

    def _enqueue(
        self,
        request: Request,
        seed: int,
        version: AdapterVersion | None,
        pieces: "asyncio.Queue[Generation | EngineError] | None" = None,
    ) -> PendingCompletion:
        ref, weights = (None, None) if version is None else (version.ref, version.weights)
        place = PendingCompletion(
            DecodeJob(request, seed, ref, weights), asyncio.get_running_loop().create_future(), pieces
        )
        self._waiting.append(place)
        if self._decode_task is None or self._decode_task.done():
            self._decode_task = asyncio.create_task(self._decode_loop(), name="engine-batch")
        return place

    async def _decode_loop(self) -> None:
        """Decode loop; on any exit, pending requests are failed."""
        try:
            while self._waiting or self._batch.jobs:
                await self._wait_for_requests()
                await self._advance(self._admissible())
        finally:
            self._batch = Batch(self.base, self._grammars)  # an idle engine holds no cache
            self._fail([*self._places.values(), *self._waiting], RuntimeError("the engine was stopped"))
            self._waiting.clear()

    async def _advance(self, new: list[PendingCompletion]) -> None:
        loop = asyncio.get_running_loop()
        try:
            done = await loop.run_in_executor(self._worker, self._run, [place.job for place in new])
        except Exception as error:  # noqa: BLE001 - the boundary: what fails with the batch is its rows, not the pump
            _log.info("a decoding step failed", exc_info=error)
            self._batch = Batch(self.base, self._grammars)
            self._fail([*self._places.values()], error)
            return
        for place in self._places.values():
            place.show()
        for job in done:
            if job.error is not None:
                _log.info("a completion of adapter %s failed", job.ref, exc_info=job.error)
            self._places.pop(job).finish()

    def _run(self, new: list[DecodeJob]) -> list[DecodeJob]:
        """In the worker: admit, then decode until a row is done or to be shown, or another caller wants the model."""
        done = self._batch.admit(new)
        is_streamed = any(place.pieces is not None for place in self._places.values())
        has_room = len(self._places) < self.base.options.max_batch
        is_wanted = is_streamed and bool(new)
        while self._batch.jobs and not done and not is_wanted:
            done = self._batch.step()
            self.steps += 1
            is_wanted = is_streamed or bool(self._scoring or self._compiling) or (has_room and bool(self._waiting))
        return done

    def _admissible(self) -> list[PendingCompletion]:
        """The oldest waiting that find room: places in the batch, each as wide as the longest completion needs."""
        options = self.base.options
        widest = max((place.job.width for place in self._places.values()), default=0)
        taken: list[PendingCompletion] = []
        while self._waiting and len(self._places) < options.max_batch:
            job = self._waiting[0].job
            widest = max(widest, job.width)
            if self._places and widest * (len(self._places) + 1) > options.max_batch_tokens and not job.is_cancelled:
                break
            place = self._waiting.popleft()
            if not job.is_cancelled:
                self._places[job] = place
                taken.append(place)
        return taken

    def _fail(self, places: list[PendingCompletion], error: Exception) -> None:
        """Answer these with the error."""
        for place in places:
            place.fail(error)
            self._places.pop(place.job, None)

    async def _wait_for_requests(self) -> None:
        quiet, seen = 0, len(self._waiting)
        while self._compiling or (quiet < SETTLE_ROUNDS and len(self._waiting) < self.base.options.max_batch):
            awaited: list[asyncio.Future[Any]] = [*self._scoring, *self._compiling]
            if awaited:
                await asyncio.wait(awaited)
                quiet = 0
            await asyncio.sleep(0)
            if len(self._waiting) == seen:
                quiet += 1
            else:
                self.longest_pause = max(self.longest_pause, quiet)
                quiet, seen = 0, len(self._waiting)
