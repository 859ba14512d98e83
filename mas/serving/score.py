"""Scoring completions: log-probabilities of texts that are there already.

Rows of one adapter version that begin alike, such as several answers to one prompt, share a tree where that saves
enough; else they are padded to one length.

Shape legend: M tokens of the trees, D hidden size, R readings, V vocabulary.
"""

from collections.abc import Sequence

import torch

from mas.serving.forward import ScoredRow, completion_logprobs
from mas.serving.head import Head
from mas.serving.model import BaseModel
from mas.serving.prefill import Forest, Prompt, forest_of, read


@torch.inference_mode()
def score_rows(base: BaseModel, rows: Sequence[ScoredRow]) -> list[tuple[float, ...]]:
    """Log-probabilities (temperature 1) of every row's completion tokens, all in one pass."""
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(id(row.weights), len(first))
    order = sorted(range(len(rows)), key=lambda n: first[id(rows[n].weights)])
    texts = [Prompt((*rows[n].prompt_ids, *rows[n].completion_ids[:-1]), rows[n].weights) for n in order]
    forest = forest_of(base, texts)
    if forest is None:
        return completion_logprobs(base.model, base.bank, rows)
    found = _shared(base, [rows[n] for n in order], forest)
    return [one for _, one in sorted(zip(order, found, strict=True))]


def _shared(base: BaseModel, rows: Sequence[ScoredRow], forest: Forest) -> list[tuple[float, ...]]:
    """A place from which several tokens are predicted is read once."""
    places = [path[len(row.prompt_ids) - 1 :] for row, path in zip(rows, forest.paths, strict=True)]
    readings = {place: number for number, place in enumerate(dict.fromkeys(one for own in places for one in own))}
    device = base.bank.device
    hidden_RD = read(base, forest).index_select(0, torch.tensor(list(readings), device=device))
    logprobs_RV = Head.of(base.model).logits(hidden_RD).log_softmax(-1)
    found = []
    for row, own in zip(rows, places, strict=True):
        picked = torch.tensor([readings[place] for place in own]), torch.tensor(list(row.completion_ids))
        found.append(tuple(logprobs_RV[picked[0].to(device), picked[1].to(device)].tolist()))
    return found
