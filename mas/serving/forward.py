"""Forward passes over whole texts: prompts are read, and completions scored.

Completions of the learner and of checks are padded (`completion_logits`): rows are left-padded, so that completions end
together and only the last L_max positions reach the head; the last completion token predicts nothing and is not fed.
The prompts of a batch that is decoded yield keys and values of every layer and the logits behind each prompt
(`prefill`); `score_rows` yields log-probabilities. For both, texts of one adapter version that begin alike share a tree
where that saves enough, so that the frame of a role is computed once for all its requests; else they are padded.

Shape legend: N rows, T padded length, L longest completion, U distinct prompts, P their padded length, M tokens of the
trees, R readings, H key-value heads, D head or hidden size, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from mas.core.engine import TokenScores
from mas.core.errors import ModelError
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_weights import AdapterWeights, segments_of
from mas.serving.logits import Head
from mas.serving.model import BaseModel
from mas.serving.packed_layout import Ids, PackedLayout, tree_of

_WORTH = 2e9
"""Multiplications that a tree must save: fewer take less time than to lay it out."""
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.5}
"""Mean nats a token between a tree and padded prompts, at most."""
_sharing: "WeakKeyDictionary[nn.Module, bool]" = WeakKeyDictionary()
"""Model -> whether it computes the same of prompts in a tree as of padded ones."""
_sizes: "WeakKeyDictionary[nn.Module, int]" = WeakKeyDictionary()
"""Model -> its number of parameters."""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One prompt and completion with its adapter. `alternatives`: how many of the most likely tokens each place has."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    weights: AdapterWeights | None = None
    alternatives: int = 0


@dataclass(frozen=True, slots=True)
class Padded:
    """Left-padded ids: `ids_NT`, `mask_NT` (1 = token), `positions_NT`."""

    ids_NT: Tensor
    mask_NT: Tensor
    positions_NT: Tensor


def pad_left(sequences: Sequence[Sequence[int]], device: torch.device) -> Padded:
    """Align the ends; padding has id 0, mask 0, position 0."""
    width = max(len(ids) for ids in sequences)
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in sequences])
    lengths = torch.tensor([[len(row)] for row in sequences])
    positions = torch.arange(width)[None] - (width - lengths)
    return Padded(ids.to(device), (positions >= 0).long().to(device), positions.clamp(min=0).to(device))


def completion_logits(model: nn.Module, bank: AdapterBank, rows: Sequence[ScoredRow]) -> Tensor:
    """Logits [N, L, V] in float32 that predict the completions' tokens, right-aligned.

    A row whose completion is shorter than L has logits of earlier positions, or of padding, at its left: mask them.
    """
    padded = pad_left([[*row.prompt_ids, *row.completion_ids[:-1]] for row in rows], bank.device)
    longest = max(len(row.completion_ids) for row in rows)
    with bank.routing([row.weights for row in rows], padded.ids_NT.shape[1]):
        output = model(
            input_ids=padded.ids_NT,
            attention_mask=padded.mask_NT,
            position_ids=padded.positions_NT,
            logits_to_keep=longest,
            use_cache=False,
        )
    logits_NLV: Tensor = output.logits[:, -longest:].float()
    return logits_NLV


def completion_logprobs(model: nn.Module, bank: AdapterBank, rows: Sequence[ScoredRow]) -> list[tuple[float, ...]]:
    """Log-probabilities (temperature 1) of every row's completion tokens, all in one pass."""
    return [one.logprobs for one in _completion_scores(model, bank, rows)]


def _completion_scores(model: nn.Module, bank: AdapterBank, rows: Sequence[ScoredRow]) -> list[TokenScores]:
    with torch.no_grad():
        logits_NLV = completion_logits(model, bank, rows)
        return [
            _token_scores(row, logits_LV[-len(row.completion_ids) :].log_softmax(-1))
            for row, logits_LV in zip(rows, logits_NLV, strict=True)
        ]


def _token_scores(row: ScoredRow, logprobs_LV: Tensor) -> TokenScores:
    """What a row's log-probabilities at the places of its completion say of its tokens."""
    tokens_L1 = torch.tensor(list(row.completion_ids), device=logprobs_LV.device)[:, None]
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()
    if row.alternatives:
        top = logprobs_LV.topk(min(row.alternatives, logprobs_LV.shape[-1]))
        places = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        alternatives = tuple(tuple(zip(tokens, values, strict=True)) for tokens, values in places)
    return TokenScores(logprobs=tuple(logprobs_LV.gather(-1, tokens_L1)[:, 0].tolist()), alternatives=alternatives)


def right_aligned(rows: Sequence[Sequence[float]], device: torch.device) -> Tensor:
    """Float rows as one tensor [N, L], zeros at the left."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[0.0] * (longest - len(row)) + list(row) for row in rows], device=device)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One distinct prompt, and the adapter version that reads it."""

    ids: Ids
    weights: AdapterWeights | None


Prefilled = tuple[list[tuple[Tensor, Tensor]], Tensor]
"""Keys and values of each layer [U, H, P, D], the prompts at their right ends, and logits [U, V]."""


@dataclass(frozen=True, slots=True)
class Forest:
    """One tree per adapter version, one behind the other. `paths`: of each prompt, in the order of the prompts."""

    ids: list[int]
    positions: list[int]
    ends: list[int]
    paths: list[Ids]
    counts: list[tuple[AdapterWeights | None, int]]

    @classmethod
    def of(cls, prompts: Sequence[Prompt]) -> "Forest":
        found = cls([], [], [], [()] * len(prompts), [])
        for _, own in groupby(range(len(prompts)), key=lambda n: id(prompts[n].weights)):
            order, start = sorted(own, key=lambda n: prompts[n].ids), len(found.ids)
            tree = tree_of([prompts[n].ids for n in order])
            found.ids.extend(tree.ids)
            found.positions.extend(tree.positions)
            found.ends.extend(start + end for end in tree.ends)
            found.counts.append((prompts[order[0]].weights, len(tree.ids)))
            for n, path in zip(order, tree.paths, strict=True):
                found.paths[n] = tuple(start + place for place in path)
        return found


def read(base: BaseModel, forest: Forest, cache: DynamicCache | None = None) -> Tensor:
    """The model's last hidden state at all tokens, [M, D]. Without gradients.

    Args:
        cache: takes keys and values of all tokens, [1, H, M, D] in each layer.
    """
    device, model = base.bank.device, cast(Any, base.model)
    with base.bank.alone, base.bank.segmented(segments_of(forest.counts)):
        output = model.base_model(
            input_ids=torch.tensor([forest.ids], device=device),
            position_ids=torch.tensor([forest.positions], device=device),
            attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
            past_key_values=cache,
            use_cache=cache is not None,
            packing=PackedLayout(forest.positions, forest.ends, device),
        )
    hidden_MD: Tensor = output.last_hidden_state[0]
    return hidden_MD


def _weights(model: nn.Module) -> int:
    """Parameters: multiplications of one token, about."""
    if model not in _sizes:
        _sizes[model] = sum(parameter.numel() for parameter in model.parameters())
    return _sizes[model]


def _prefill_padded(base: BaseModel, prompts: Sequence[Prompt]) -> Prefilled:
    padded = pad_left([prompt.ids for prompt in prompts], base.bank.device)
    cache: Any = DynamicCache()
    with base.bank.routing([prompt.weights for prompt in prompts], padded.ids_NT.shape[1]):
        output = base.model(
            input_ids=padded.ids_NT,
            attention_mask=padded.mask_NT,
            position_ids=padded.positions_NT,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
    return [(layer.keys, layer.values) for layer in cache.layers], output.logits[:, -1]


def _prefill_trees(base: BaseModel, prompts: Sequence[Prompt], forest: Forest) -> Prefilled:
    cache = DynamicCache()
    hidden_MD = read(base, forest, cache)
    longest = max(len(prompt.ids) for prompt in prompts)
    places_UP = torch.tensor([[0] * (longest - len(path)) + list(path) for path in forest.paths])
    places_UP = places_UP.to(base.bank.device)
    layers: Any = cache.layers
    kept = [tuple(x[0, :, places_UP].transpose(0, 1) for x in (layer.keys, layer.values)) for layer in layers]
    hidden_UD = hidden_MD.index_select(0, places_UP[:, -1])
    return [(keys, values) for keys, values in kept], Head.of(base.model).logits(hidden_UD)


def _gap(first: Prefilled, second: Prefilled) -> float:
    logprobs = [logits_UV.float().log_softmax(-1) for _, logits_UV in (first, second)]
    return float((logprobs[0] - logprobs[1]).abs().mean(-1).max())


def _shares(base: BaseModel) -> bool:
    """Whether the model computes the same of prompts in a tree as of padded ones; a model is tried once."""
    if base.model not in _sharing:
        beginning = tuple(7 * place % base.limits.vocabulary for place in range(1, 12))
        prompts = [Prompt((*beginning, 1, 2, 3), None), Prompt((*beginning, 3), None), Prompt((2, 1), None)]
        try:
            gap = _gap(_prefill_padded(base, prompts), _prefill_trees(base, prompts, Forest.of(prompts)))
        except (
            ModelError,
            TypeError,
            ValueError,
            AttributeError,
            KeyError,
            RuntimeError,
        ):  # an architecture that takes no layout
            gap = float("inf")
        _sharing[base.model] = gap <= _TOLERANCE[base.options.dtype]
    return _sharing[base.model]


def forest_of(base: BaseModel, prompts: Sequence[Prompt]) -> Forest | None:
    """The prompts as trees; None: that saves too little, or the model cannot read them so."""
    padded = len(prompts) * max(len(prompt.ids) for prompt in prompts)
    if len(prompts) == 1 or padded * _weights(base.model) < _WORTH or not _shares(base):
        return None
    forest = Forest.of(prompts)
    return forest if (padded - len(forest.ids)) * _weights(base.model) >= _WORTH else None


def prefill(base: BaseModel, prompts: Sequence[Prompt]) -> Prefilled:
    """Read distinct prompts, those of one adapter version side by side."""
    forest = forest_of(base, prompts)
    return _prefill_padded(base, prompts) if forest is None else _prefill_trees(base, prompts, forest)


def score_rows(base: BaseModel, rows: Sequence[ScoredRow]) -> list[tuple[float, ...]]:
    """Log-probabilities (temperature 1) of every row's completion tokens, all in one pass."""
    return [one.logprobs for one in score_tokens(base, rows)]


@torch.inference_mode()
def score_tokens(base: BaseModel, rows: Sequence[ScoredRow]) -> list[TokenScores]:
    """The scores of every row's completion tokens, with the alternatives that it asks for, all in one pass."""
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(id(row.weights), len(first))
    order = sorted(range(len(rows)), key=lambda n: first[id(rows[n].weights)])
    texts = [Prompt((*rows[n].prompt_ids, *rows[n].completion_ids[:-1]), rows[n].weights) for n in order]
    forest = forest_of(base, texts)
    if forest is None:
        return _completion_scores(base.model, base.bank, rows)
    found = _score_trees(base, [rows[n] for n in order], forest)
    return [one for _, one in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def _score_trees(base: BaseModel, rows: Sequence[ScoredRow], forest: Forest) -> list[TokenScores]:
    """A place from which several tokens are predicted is read once."""
    places = [path[len(row.prompt_ids) - 1 :] for row, path in zip(rows, forest.paths, strict=True)]
    readings = {place: number for number, place in enumerate(dict.fromkeys(one for own in places for one in own))}
    device = base.bank.device
    hidden_RD = read(base, forest).index_select(0, torch.tensor(list(readings), device=device))
    logprobs_RV = Head.of(base.model).logits(hidden_RD).log_softmax(-1)
    found = []
    for row, own in zip(rows, places, strict=True):
        readings_L = torch.tensor([readings[place] for place in own], device=device)
        found.append(_token_scores(row, logprobs_RV[readings_L]))
    return found
