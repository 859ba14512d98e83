"""Decoding one batch whose rows speak with different adapters and come and go on their own.

A row leaves at its last token and another may take its place before the next step: nothing waits for the longest, and
no step computes a token that nobody wants. Prompts are prefilled in parts of about one length; equal prompts of one
adapter version once.

Shape legend: N rows, T columns of the cache, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from mas.core.engine import AdapterRef, Generation, Request
from mas.serving.draw import draw_tokens
from mas.serving.forward import pad_left
from mas.serving.model import BaseModel
from mas.serving.slots import SlotCache
from mas.serving.weights import AdapterWeights

_PREFILL_TOKENS = 16_384
"""Padded tokens of one prefill at most, or one prompt."""
_PADDING = 1.25
"""The longest prompt of one prefill is at most so many times as long as the shortest."""


@dataclass(slots=True, eq=False)
class Job:
    """One completion while it is decoded, with the adapter version that was current when it was asked for."""

    request: Request
    seed: int
    ref: AdapterRef | None
    weights: AdapterWeights | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_cancelled: bool = False

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to draw."""
        return self.is_cancelled or bool(self._finish())

    def _finish(self) -> str:
        sampling = self.request.sampling
        if not self.token_ids:
            return ""
        if self.token_ids[-1] in sampling.stop:
            return "stop"
        return "length" if len(self.token_ids) >= sampling.max_tokens else ""

    def piece(self, start: int = 0) -> Generation:
        """What was drawn from the `start`-th token on; the whole completion when it is done."""
        return Generation(
            token_ids=tuple(self.token_ids[start:]),
            logprobs=tuple(self.logprobs[start:]),
            finish=self._finish(),
            adapter=self.ref,
        )


class Batch:
    """The rows that are decoded together. Used by one thread at a time."""

    def __init__(self, base: BaseModel) -> None:
        self._base = base
        self._cache = SlotCache(base.model.config.get_text_config().num_hidden_layers)
        self.jobs: list[Job] = []

    @torch.inference_mode()
    def admit(self, jobs: Iterable[Job]) -> list[Job]:
        """Prefill new rows and draw their first tokens; returns those that are done with it."""
        done = []
        for part in _parts(jobs):
            prefilled, logits_NV, rows = _prefill(self._base, part)
            _draw(part, logits_NV[rows])
            going = [n for n, job in enumerate(part) if not job.is_done]
            done += [job for job in part if job.is_done]
            if going:
                lengths = [len(part[n].request.prompt_ids) for n in going]
                self._cache.add(prefilled, [rows[n] for n in going], lengths)
                self.jobs += [part[n] for n in going]
        return done

    @torch.inference_mode()
    def step(self) -> list[Job]:
        """Draw one token for every row; returns those that are done with it, and rows that were cancelled."""
        if any(job.is_cancelled for job in self.jobs):
            done = self._leave()
            if not self.jobs:
                return done
        else:
            done = []
        _draw(self.jobs, self._forward())
        return done + self._leave()

    def _leave(self) -> list[Job]:
        done = [job for job in self.jobs if job.is_done]
        if done:
            going = [n for n, job in enumerate(self.jobs) if not job.is_done]
            self.jobs = [self.jobs[n] for n in self._cache.keep(going)]
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


def _draw(jobs: Sequence[Job], logits_NV: Tensor) -> None:
    temperatures = [job.request.sampling.temperature for job in jobs]
    tokens_N, logprobs_N = draw_tokens(
        logits_NV, temperatures, [job.seed for job in jobs], [len(job.token_ids) for job in jobs]
    )
    for job, token, logprob in zip(jobs, tokens_N.tolist(), logprobs_N.tolist(), strict=True):
        job.token_ids.append(token)
        job.logprobs.append(logprob)


def _parts(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Jobs whose prompts are prefilled together: of about one length, those of one adapter side by side."""
    part: list[Job] = []
    for job in sorted(jobs, key=lambda job: len(job.request.prompt_ids)):
        length = len(job.request.prompt_ids)
        if part and (
            length > _PADDING * len(part[0].request.prompt_ids) + 1 or length * (len(part) + 1) > _PREFILL_TOKENS
        ):
            yield _by_adapter(part)
            part = []
        part.append(job)
    if part:
        yield _by_adapter(part)


def _by_adapter(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (str(job.ref), job.request.prompt_ids))


def _prefill(base: BaseModel, jobs: Sequence[Job]) -> tuple[list[tuple[Tensor, Tensor]], Tensor, list[int]]:
    """Run the distinct prompts: keys and values per layer, the logits behind them, and each job's row in both."""
    distinct: list[Job] = []
    rows: list[int] = []
    for job in jobs:
        is_same = distinct and (distinct[-1].ref, distinct[-1].request.prompt_ids) == (job.ref, job.request.prompt_ids)
        if not is_same:
            distinct.append(job)
        rows.append(len(distinct) - 1)
    padded = pad_left([job.request.prompt_ids for job in distinct], base.bank.device)
    cache: Any = DynamicCache()
    with base.bank.routing([job.weights for job in distinct]):
        output = base.model(
            input_ids=padded.ids_NT,
            attention_mask=padded.mask_NT,
            position_ids=padded.positions_NT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    return [(layer.keys, layer.values) for layer in cache.layers], output.logits[:, -1], rows
