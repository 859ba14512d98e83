"""Engines, transformers' generate and PEFT's mixed batch, each doing one round of the workload.

The two that call `generate` return no log-probabilities and are not asked for any, which is in their favour.
Shape legend: N rows, T padded prompt length, L longest completion, V vocabulary.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from benchmarks.serving.completions import Made
from benchmarks.serving.workload import Workload
from mas.core.engine import Generation, Request
from mas.core.errors import EngineError
from mas.serving.forward import pad_left
from mas.serving.store import ServingEngine

BASE_ROW = "__base__"
"""What PEFT calls a row without adapter."""


class EngineCompetitor:
    """Every request of a round at once, as a sampler sends them."""

    def __init__(self, name: str, engine: ServingEngine, workload: Workload, *, is_mixed: bool) -> None:
        self.name = name
        self.engine = engine
        self._workload = workload
        self._is_mixed = is_mixed
        self._last: Made | None = None

    async def run(self, number: int) -> int:
        requests = self._workload.round(number, is_mixed=self._is_mixed)
        answers = await asyncio.gather(*(self.engine.generate(request) for request in requests))
        self._last = Made.checked(self.name, requests, [one for answer in answers for one in answer])
        return self._last.tokens

    def last(self) -> Made:
        """The round that ran last.

        Raises:
            EngineError: none ran yet.
        """
        if self._last is None:
            raise EngineError(f"{self.name} has not run yet")
        return self._last


class GenerateCompetitor:
    """One left-padded batch that runs until its longest row is done; only wanted tokens count.

    `model` is a transformers model (`is_mixed` False: every row is the bare base's) or a `PeftModel`.
    """

    def __init__(self, name: str, model: Any, workload: Workload, *, is_mixed: bool) -> None:
        self.name = name
        self._model = model
        self._workload = workload
        self._is_mixed = is_mixed

    async def run(self, number: int) -> int:
        requests = self._workload.round(number, is_mixed=self._is_mixed)
        padded = pad_left([request.prompt_ids for request in requests], self._model.device)
        wanted = [request.sampling.max_tokens for request in requests]
        width = padded.ids_NT.shape[1]
        mixed = {"adapter_names": adapter_names(requests)} if self._is_mixed else {}
        with torch.random.fork_rng():
            torch.manual_seed(requests[0].seeds[0])
            ids_NTL = self._model.generate(
                input_ids=padded.ids_NT,
                attention_mask=padded.mask_NT,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=max(wanted),
                stopping_criteria=[_Lengths(width, wanted)],
                **mixed,
            )
        rows = [tuple(row[width : width + count]) for row, count in zip(ids_NTL.tolist(), wanted, strict=True)]
        generations = [Generation(token_ids=row, logprobs=(), finish="length") for row in rows]
        return Made.checked(self.name, requests, generations).tokens


class _Lengths(StoppingCriteria):
    """A row is done at its own length; the batch ends when all are."""

    def __init__(self, width: int, wanted: Sequence[int]) -> None:
        self._width = width
        self._wanted_N = torch.tensor(wanted)

    def __call__(self, input_ids: Tensor, scores: Any, **_: object) -> Tensor:
        return self._wanted_N.to(input_ids.device) <= input_ids.shape[1] - self._width


def adapter_names(requests: Sequence[Request]) -> list[str]:
    """PEFT's name of each row's adapter."""
    return [request.adapter or BASE_ROW for request in requests]


def logprob_gap(model: Any, made: Made, *, is_mixed: bool = False) -> float:
    """Largest difference in nats between the log-probabilities that came with completions and the model's for them.

    Args:
        model: a transformers model; `is_mixed`: a `PeftModel`, whose rows have the adapters of their requests.
    """
    mixed = {"adapter_names": adapter_names(made.requests)} if is_mixed else {}
    rows = list(zip(made.requests, made.generations, strict=True))
    padded = pad_left([[*one.prompt_ids, *got.token_ids[:-1]] for one, got in rows], model.device)
    with torch.inference_mode():
        logits_NTV = model(
            input_ids=padded.ids_NT,
            attention_mask=padded.mask_NT,
            position_ids=padded.positions_NT,
            use_cache=False,
            logits_to_keep=max(len(got.token_ids) for got in made.generations),
            **mixed,
        ).logits
        logprobs_NTV = torch.log_softmax(logits_NTV.float(), -1)
    worst = 0.0
    for scores_TV, (_, got) in zip(logprobs_NTV, rows, strict=True):
        ids_L = torch.tensor(got.token_ids, device=scores_TV.device)
        scores_L = scores_TV[-len(ids_L) :].gather(-1, ids_L[:, None])[:, 0]
        worst = max(worst, float((scores_L - torch.tensor(got.logprobs, device=scores_TV.device)).abs().max()))
    return worst
