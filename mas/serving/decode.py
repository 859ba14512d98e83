"""Decoding one batch whose rows speak with different adapters and come and go on their own.

A row leaves at its last token and another may take its place before the next step: nothing waits for the longest, and
no step computes a token that is not wanted. Prompts are read in parts of about one length; equal prompts of one adapter
version once, and what prompts of one begin with in common (`mas.serving.forward`).

Shape legend: N rows, U distinct prompts, V vocabulary.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError
from mas.core.support import WHOLE, pack_support
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import Prompt, prefill
from mas.serving.grammar import GrammarFailed, Grammars, Matcher
from mas.serving.kv_cache import SlotCache
from mas.serving.logits import draw_tokens, likeliest, supports_of
from mas.serving.model import BaseModel

_PREFILL_TOKENS = 16_384
"""Padded tokens of one prefill at most, or one prompt."""
_PADDING = 1.25
"""The longest prompt of one prefill is at most so many times as long as the shortest."""


Alternatives = tuple[tuple[int, float], ...]
"""The most likely tokens of a place with their log-probabilities."""


@dataclass(slots=True, eq=False)
class DecodeJob:
    """One completion while it is decoded, with the adapter version that was current when it was asked for."""

    request: Request
    seed: int
    ref: AdapterRef | None
    weights: AdapterWeights | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    supports: list[bytes] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)
    matcher: Matcher | None = None
    is_cancelled: bool = False
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to draw. A requester may cancel at any moment: read it once per decision."""
        return self.is_cancelled or self.error is not None or bool(self._finish())

    @property
    def width(self) -> int:
        """Tokens that it has in the end, at most."""
        return len(self.request.prompt_ids) + self.request.sampling.max_tokens

    def _finish(self) -> str:
        sampling = self.request.sampling
        if not self.token_ids:
            return ""
        if self.token_ids[-1] in sampling.stop or (self.matcher and self.token_ids[-1] == self.matcher.end):
            return "stop"
        return "length" if len(self.token_ids) >= sampling.max_tokens else ""

    def add(self, token: int, logprob: float, support: bytes, alternatives: Alternatives = ()) -> None:
        """One more token; and the end behind it, where a grammar leaves nothing else."""
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        if self.request.sampling.alternatives:
            self.alternatives.append(alternatives)
        if not self.request.sampling.is_restricted:
            return
        self.supports.append(support)
        matcher = self.matcher
        if matcher is None or self._finish():
            return
        try:
            matcher.follow(token)
            is_over = matcher.is_over
        except GrammarFailed as error:
            self.error = error
            return
        if is_over:
            self.token_ids.append(matcher.end)
            self.logprobs.append(0.0)
            self.supports.append(pack_support(matcher.mask()))
            if self.request.sampling.alternatives:
                self.alternatives.append(((matcher.end, 0.0),))

    def piece(self, start: int = 0) -> Generation:
        """What was drawn from the `start`-th token on; the whole completion when it is done."""
        return Generation(
            token_ids=tuple(self.token_ids[start:]),
            logprobs=tuple(self.logprobs[start:]),
            finish=self._finish(),
            adapter=self.ref,
            supports=tuple(self.supports[start:]),
            alternatives=tuple(self.alternatives[start:]),
        )


@dataclass(slots=True)
class PendingCompletion:
    """A completion that a caller waits for: `future`, or `pieces` of it (at most one a token)."""

    job: DecodeJob
    future: asyncio.Future[Generation]
    pieces: asyncio.Queue[Generation | EngineError] | None
    shown: int = 0

    def show(self) -> None:
        """Hand out what was drawn since the last time."""
        if self.pieces is not None and len(self.job.token_ids) > self.shown:
            self.pieces.put_nowait(self.job.piece(self.shown))
            self.shown = len(self.job.token_ids)

    def finish(self) -> None:
        if self.job.error is not None:
            self.fail(self.job.error)
        elif not self.future.done():
            self.future.set_result(self.job.piece())

    def fail(self, error: Exception) -> None:
        failure = EngineError(f"decoding failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        if self.pieces is not None:
            self.pieces.put_nowait(failure)
        elif not self.future.done():
            self.future.set_exception(failure)

    def leave(self) -> None:
        """Nobody waits any longer: what is not drawn yet will not be."""
        self.job.is_cancelled = True
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()  # a failure that its request has seen on another completion


class Batch:
    """The rows that are decoded together. Used by one thread at a time."""

    def __init__(self, base: BaseModel, grammars: Grammars) -> None:
        self._base = base
        self._grammars = grammars
        self.jobs: list[DecodeJob] = []

    @cached_property
    def _cache(self) -> SlotCache:
        """Made for the first row that is not done with its first token."""
        return SlotCache(self._base.model.config.get_text_config().num_hidden_layers)

    @torch.inference_mode()
    def admit(self, jobs: Iterable[DecodeJob]) -> list[DecodeJob]:
        """Prefill new rows and draw their first tokens; returns those that are done with it, or failed."""
        done = []
        parts = list(_parts(jobs))
        later = sum(len(same) for prompts in parts for same in prompts)
        for prompts in parts:
            new = [job for same in prompts for job in same]
            rows = [row for row, same in enumerate(prompts) for _ in same]
            later -= len(new)
            try:
                for job in new:
                    if (grammar := job.request.sampling.grammar) is not None:
                        job.matcher = self._grammars.matcher(grammar)
                firsts = (same[0] for same in prompts)
                prefilled, logits_UV = prefill(
                    self._base, [Prompt(job.request.prompt_ids, job.weights) for job in firsts]
                )
                _draw(new, logits_UV[rows])
            except Exception as error:  # noqa: BLE001 - the boundary: what fails is new, rows that decode continue
                for job in new:
                    job.error = error
            over = [job.is_done for job in new]
            done += [job for job, is_over in zip(new, over, strict=True) if is_over]
            going = [n for n, is_over in enumerate(over) if not is_over]
            if going:
                lengths = [len(new[n].request.prompt_ids) for n in going]
                self._cache.add(prefilled, [rows[n] for n in going], lengths, later)
                self.jobs += [new[n] for n in going]
        return done

    @torch.inference_mode()
    def step(self) -> list[DecodeJob]:
        """Draw one token for every row; returns those that are done with it, and rows that were cancelled."""
        done = self._leave()
        if self.jobs:
            _draw(self.jobs, self._forward())
            done += self._leave()
        return done

    def _leave(self) -> list[DecodeJob]:
        over = [job.is_done for job in self.jobs]
        if not any(over):
            return []
        done = [job for job, is_over in zip(self.jobs, over, strict=True) if is_over]
        if broken := [n for n, job in enumerate(self.jobs) if job.error is not None]:
            self._cache.wipe(broken)
        order = self._cache.keep([n for n, is_over in enumerate(over) if not is_over])
        self.jobs = [self.jobs[n] for n in order]
        return done

    def _forward(self) -> Tensor:
        """Feed the last token of every row; returns logits [N, V]."""
        base, cache = self._base, self._cache
        ids_N = torch.tensor([job.token_ids[-1] for job in self.jobs], device=base.bank.device)
        positions = [len(job.request.prompt_ids) + len(job.token_ids) - 1 for job in self.jobs]
        with base.bank.stacking([job.weights for job in self.jobs]):
            output = base.model(
                input_ids=ids_N[:, None],
                attention_mask=cache.mask(base.attention, base.model.dtype, base.bank.device),
                position_ids=torch.tensor(positions, device=base.bank.device)[:, None],
                past_key_values=cache,
                use_cache=True,
            )
        cache.advance()
        logits_NV: Tensor = output.logits[:, -1]
        return logits_NV


def _draw(jobs: Sequence[DecodeJob], logits_NV: Tensor) -> None:
    """One more token for each; a row whose model computes no numbers any more has an error instead."""
    temperatures = [job.request.sampling.temperature for job in jobs]
    support_NV = _supports(jobs, logits_NV)
    tokens_N, logprobs_N = draw_tokens(
        logits_NV, temperatures, [job.seed for job in jobs], [len(job.token_ids) for job in jobs], support_NV
    )
    masks_NV = None if support_NV is None else support_NV.cpu().numpy()
    others = _alternatives(jobs, logits_NV, support_NV)
    for row, (job, token, logprob) in enumerate(zip(jobs, tokens_N.tolist(), logprobs_N.tolist(), strict=True)):
        if job.error is not None:
            continue
        if math.isfinite(logprob):
            support = WHOLE if masks_NV is None else pack_support(masks_NV[row])
            job.add(token, logprob, support, others.get(row, ()))
        else:
            job.error = ArithmeticError(f"adapter {job.ref} gives a log-probability of {logprob}")


def _alternatives(jobs: Sequence[DecodeJob], logits_NV: Tensor, support_NV: Tensor | None) -> dict[int, Alternatives]:
    """Row -> its most likely tokens, of the rows that want them."""
    rows = [row for row, job in enumerate(jobs) if job.request.sampling.alternatives and job.error is None]
    if not rows:
        return {}
    wanted = [jobs[row].request.sampling for row in rows]
    found = likeliest(
        logits_NV[rows],
        [sampling.temperature for sampling in wanted],
        max(sampling.alternatives for sampling in wanted),
        None if support_NV is None else support_NV[rows],
    )
    counts = [sampling.alternatives for sampling in wanted]
    return {row: tuple(own[:count]) for row, own, count in zip(rows, found, counts, strict=True)}


def _supports(jobs: Sequence[DecodeJob], logits_NV: Tensor) -> Tensor | None:
    """As `supports_of`; a row whose grammar fails has an error instead, and the others continue."""
    masks: list[NDArray[np.bool_] | None] = [None] * len(jobs)
    for row, job in enumerate(jobs):
        try:
            masks[row] = None if job.matcher is None else job.matcher.mask()
        except GrammarFailed as error:
            job.error = error
    return supports_of(logits_NV, [job.request.sampling for job in jobs], masks)


def _parts(jobs: Iterable[DecodeJob]) -> Iterator[list[list[DecodeJob]]]:
    """Jobs by prompt; distinct prompts of about one length together, those of one adapter version side by side."""
    distinct: dict[tuple[str, tuple[int, ...]], list[DecodeJob]] = {}
    for job in jobs:
        distinct.setdefault((str(job.ref), job.request.prompt_ids), []).append(job)
    part: list[tuple[str, tuple[int, ...]]] = []
    for key in sorted(distinct, key=lambda key: len(key[1])):
        length = len(key[1])
        if part and (length > _PADDING * len(part[0][1]) + 1 or length * (len(part) + 1) > _PREFILL_TOKENS):
            yield [distinct[one] for one in sorted(part)]
            part = []
        part.append(key)
    if part:
        yield [distinct[one] for one in sorted(part)]
