"""Decoding one batch whose rows speak with different adapters. Equal prompts of one adapter are prefilled once.

Shape legend: U distinct prompts, N rows, P padded prompt length, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from mas.core.engine import AdapterRef, Generation, Request
from mas.serving.draw import draw_tokens
from mas.serving.forward import pad_left
from mas.serving.lora import AdapterBank, AdapterWeights


@dataclass(slots=True)
class Job:
    """One completion while it is decoded, with the adapter version that was current when it was asked for."""

    request: Request
    seed: int
    ref: AdapterRef | None
    weights: AdapterWeights | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_cancelled: bool = False

    def take(self, token: int, logprob: float) -> bool:
        """Add a token; True when the completion goes on."""
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        sampling = self.request.sampling
        return not self.is_cancelled and token not in sampling.stop and len(self.token_ids) < sampling.max_tokens

    def generation(self) -> Generation:
        """The finished completion."""
        stopped = self.token_ids[-1] in self.request.sampling.stop
        return Generation(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            finish="stop" if stopped else "length",
            adapter=self.ref,
        )


def decode(model: PreTrainedModel, bank: AdapterBank, jobs: Sequence[Job]) -> None:
    """Complete every job in place."""
    order = sorted(range(len(jobs)), key=lambda n: (str(jobs[n].ref), jobs[n].request.prompt_ids, n))
    rows = [jobs[n] for n in order]
    with torch.inference_mode():
        batch, logits_NV = _prefill(model, bank, rows)
        position = 0
        while True:
            sampling = [job.request.sampling for job in batch.rows]
            tokens_N, logprobs_N = draw_tokens(
                logits_NV, [s.temperature for s in sampling], [job.seed for job in batch.rows], position
            )
            pairs = zip(batch.rows, tokens_N.tolist(), logprobs_N.tolist(), strict=True)
            going = [n for n, (job, token, logprob) in enumerate(pairs) if job.take(token, logprob)]
            if not going:
                return
            batch.keep(going)
            logits_NV = batch.forward(model, bank, tokens_N[going])
            position += 1


@dataclass(slots=True)
class _Batch:
    """Rows still decoding, with their key-value cache."""

    rows: list[Job]
    cache: DynamicCache
    mask_NP: Tensor
    next_N: Tensor

    def keep(self, indices: list[int]) -> None:
        """Drop finished rows, so that they cost nothing more."""
        if len(indices) == len(self.rows):
            return
        self.rows = [self.rows[n] for n in indices]
        index = torch.tensor(indices, device=self.mask_NP.device)
        self.cache.batch_select_indices(index)
        self.mask_NP, self.next_N = self.mask_NP[index], self.next_N[index]

    def forward(self, model: PreTrainedModel, bank: AdapterBank, tokens_N: Tensor) -> Tensor:
        """Feed one token per row; returns logits [N, V]."""
        self.mask_NP = torch.cat([self.mask_NP, torch.ones_like(self.mask_NP[:, :1])], dim=1)
        with bank.routing([job.weights for job in self.rows]):
            output = model(
                input_ids=tokens_N[:, None],
                attention_mask=self.mask_NP,
                position_ids=self.next_N[:, None],
                past_key_values=self.cache,
                use_cache=True,
            )
        self.next_N = self.next_N + 1
        logits: Tensor = output.logits[:, -1]
        return logits


def _prefill(model: PreTrainedModel, bank: AdapterBank, rows: list[Job]) -> tuple[_Batch, Tensor]:
    distinct: list[Job] = []
    index: list[int] = []
    for job in rows:
        same = distinct and (distinct[-1].ref, distinct[-1].request.prompt_ids) == (job.ref, job.request.prompt_ids)
        if not same:
            distinct.append(job)
        index.append(len(distinct) - 1)
    padded = pad_left([job.request.prompt_ids for job in distinct], bank.device)
    cache = DynamicCache(config=model.config)
    with bank.routing([job.weights for job in distinct]):
        output = model(
            input_ids=padded.ids_NT,
            attention_mask=padded.mask_NT,
            position_ids=padded.positions_NT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    expand = torch.tensor(index, device=bank.device)
    single = all(job.request.sampling.max_tokens == 1 for job in rows)
    if len(distinct) != len(rows) and not single:
        cache.batch_select_indices(expand)
    batch = _Batch(rows, cache, padded.mask_NT[expand], padded.positions_NT[expand, -1] + 1)
    return batch, output.logits[:, -1][expand]
