"""One teacher-forced forward pass for completions, shared by the engine's `score` and the learner.

Rows are left-padded, so that completions end together and only the last L_max positions reach the head.
The last completion token predicts nothing and is not fed.
Shape legend: N rows, T padded length, L longest completion, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mas.serving.lora import AdapterBank
from mas.serving.weights import AdapterWeights


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One prompt and completion with the adapter that speaks."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    weights: AdapterWeights | None = None


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
    with bank.routing([row.weights for row in rows]):
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
    found: list[tuple[float, ...]] = []
    with torch.no_grad():
        for row, logits_LV in zip(rows, completion_logits(model, bank, rows), strict=True):
            own_LV = logits_LV[-len(row.completion_ids) :]
            tokens_L1 = torch.tensor(row.completion_ids, device=own_LV.device)[:, None]
            found.append(tuple(torch.log_softmax(own_LV, -1).gather(-1, tokens_L1)[:, 0].tolist()))
    return found


def right_aligned(rows: Sequence[Sequence[float]], device: torch.device) -> Tensor:
    """Float rows as one tensor [N, L], zeros at the left."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[0.0] * (longest - len(row)) + list(row) for row in rows], device=device)
