"""The step as it is usually written with PEFT: one role after the other, `set_adapter`, forward, loss, backward.

Everything is written out once more instead of taken from mas, so that equal gradients say something. Neither loop
computes an entropy, as mas does for its metrics.
Shape legend: N rows, T padded tokens, P longest prompt, C longest completion, M tokens in a row, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.learner.competitors import CLIP, DUAL_CLIP, STEP_LOSS, TOKEN_LOSS, settle
from benchmarks.learner.rows import useful_tokens
from mas.config.options import LearnerOptions
from mas.training.batch import TrainRow


class PeftCompetitor(ABC):
    """Roles in turn over one `PeftModel`, each with an AdamW of its own; what a role's rows cost is left to others."""

    def __init__(self, name: str, model: Any, rows: Sequence[TrainRow], options: LearnerOptions) -> None:
        self.name = name
        self.losses: dict[str, dict[str, float]] = {}
        self.model = model
        self._clip_norm = options.clip_norm
        self._tokens = useful_tokens(rows)
        self._rows = {role: [row for row in rows if row.adapter == role] for role in model.peft_config}
        self.adapters = {role: _tensors(model, role) for role in self._rows}
        self._optimisers = {
            role: torch.optim.AdamW(
                tensors.values(),
                lr=options.lr,
                betas=(options.beta1, options.beta2),
                weight_decay=options.weight_decay,
                fused=options.fused,
            )
            for role, tensors in self.adapters.items()
        }

    async def run(self, number: int) -> int:
        for role, rows in self._rows.items():
            self.model.set_adapter(role)
            self._optimisers[role].zero_grad(set_to_none=True)
            self.losses[role] = self.backward(rows)
            torch.nn.utils.clip_grad_norm_(self.adapters[role].values(), self._clip_norm)
            self._optimisers[role].step()
        settle(self.model.device)
        return self._tokens

    @abstractmethod
    def backward(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        """Add one role's gradients, and return its losses by name."""


class Forward(Protocol):
    """How the rows of a role are read."""

    def split(self, rows: Sequence[TrainRow]) -> Iterator[Sequence[TrainRow]]:
        """The rows of each forward pass."""

    def logprobs(self, model: Any, rows: Sequence[TrainRow]) -> Tensor:
        """Log-probabilities [M] of all completion tokens, row after row."""


class PeftLoop(PeftCompetitor):
    """The clipped loss over one way to read rows."""

    def __init__(
        self, name: str, model: Any, rows: Sequence[TrainRow], options: LearnerOptions, forward: Forward
    ) -> None:
        super().__init__(name, model, rows, options)
        self._forward = forward

    def backward(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        device = self.model.device
        total, mean = torch.zeros((), device=device), torch.zeros((), device=device)
        tokens = sum(len(row.turn.completion_ids) for row in rows)
        for part in self._forward.split(rows):
            losses_M = _clipped(self._forward.logprobs(self.model, part), part)
            lengths = [len(row.turn.completion_ids) for row in part]
            weights_M = torch.tensor(
                [1 / (len(rows) * length) for length in lengths for _ in range(length)], device=device
            )
            loss = (losses_M * weights_M).sum()
            loss.backward()  # type: ignore[no-untyped-call]  # torch annotates in part
            total += loss.detach()
            mean += losses_M.detach().sum() / tokens
        return {STEP_LOSS: float(total), TOKEN_LOSS: float(mean)}


Widths = Mapping[str, tuple[int, int]]
"""Tokens of the longest prompt and of the longest completion, by role."""


def widths_of(rows: Sequence[TrainRow]) -> Widths:
    """What a role's rows are padded to: TRL and verl pad the tensors of a whole batch once."""
    widths: dict[str, tuple[int, int]] = {}
    for row in rows:
        prompt, completion = widths.get(row.adapter, (0, 0))
        widths[row.adapter] = max(prompt, len(row.turn.prompt_ids)), max(completion, len(row.turn.completion_ids))
    return widths


@dataclass(frozen=True, slots=True)
class Padded:
    """Prompts padded at their left, completions at their right, as TRL does; logits of completions only."""

    rows_per_forward: int
    widths: Widths

    def split(self, rows: Sequence[TrainRow]) -> Iterator[Sequence[TrainRow]]:
        for start in range(0, len(rows), self.rows_per_forward):
            yield rows[start : start + self.rows_per_forward]

    def logprobs(self, model: Any, rows: Sequence[TrainRow]) -> Tensor:
        batch = PaddedRows.of(rows, self.widths, model.device)
        mask_NT = torch.cat([batch.prompt_mask_NP, batch.mask_NC], 1)
        logits_NCV = model(
            input_ids=torch.cat([batch.prompts_NP, batch.completions_NC], 1),
            attention_mask=mask_NT,
            position_ids=(mask_NT.cumsum(1) - 1).clamp(min=0),
            logits_to_keep=batch.mask_NC.shape[1] + 1,
            use_cache=False,
        ).logits[:, :-1]
        scores_NCV = torch.log_softmax(logits_NCV.float(), -1)
        return scores_NCV.gather(-1, batch.completions_NC[..., None])[..., 0][batch.mask_NC.bool()]


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """Ids and masks (1 = token) of prompts [N, P] and completions [N, C]."""

    prompts_NP: Tensor
    prompt_mask_NP: Tensor
    completions_NC: Tensor
    mask_NC: Tensor

    @classmethod
    def of(cls, rows: Sequence[TrainRow], widths: Widths, device: torch.device) -> "PaddedRows":
        """Rows of one role as tensors; padding has id 0."""
        prompt, completion = widths[rows[0].adapter]
        prompts = [torch.tensor(row.turn.prompt_ids) for row in rows]
        completions = [torch.tensor(row.turn.completion_ids) for row in rows]
        return cls(
            pad(prompts, "left", prompt).to(device),
            pad([torch.ones_like(ids) for ids in prompts], "left", prompt).to(device),
            pad(completions, "right", completion).to(device),
            pad([torch.ones_like(ids) for ids in completions], "right", completion).to(device),
        )


def pad(rows: Sequence[Tensor], side: str, width: int) -> Tensor:
    """Rows of different lengths as one tensor [N, width], zeros at the side."""
    missing = [width - len(row) for row in rows]
    sides = [(zeros, 0) if side == "left" else (0, zeros) for zeros in missing]
    return torch.stack([torch.nn.functional.pad(row, both) for row, both in zip(rows, sides, strict=True)])


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows one behind the other, their positions from 0: transformers then masks each from the others.

    No attention mask may be given, or transformers does not look at the positions. Under `sdpa` it makes a mask of all
    tokens by all tokens, so that attention costs the square of `budget`, the most tokens of a forward pass.
    """

    budget: int

    def split(self, rows: Sequence[TrainRow]) -> Iterator[Sequence[TrainRow]]:
        part: list[TrainRow] = []
        tokens = 0
        for row in rows:
            length = len(_fed(row))
            if part and tokens + length > self.budget:
                yield part
                part, tokens = [], 0
            part.append(row)
            tokens += length
        if part:
            yield part

    def logprobs(self, model: Any, rows: Sequence[TrainRow]) -> Tensor:
        ids = [token for row in rows for token in _fed(row)]
        positions = [position for row in rows for position in range(len(_fed(row)))]
        reads: list[int] = []
        start = 0
        for row in rows:
            end = start + len(_fed(row))
            reads += range(end - len(row.turn.completion_ids), end)
            start = end
        targets_M = torch.tensor([token for row in rows for token in row.turn.completion_ids], device=model.device)
        logits_MV = model(
            input_ids=torch.tensor([ids], device=model.device),
            position_ids=torch.tensor([positions], device=model.device),
            logits_to_keep=torch.tensor(reads, device=model.device),
            use_cache=False,
        ).logits[0]
        return torch.log_softmax(logits_MV.float(), -1).gather(-1, targets_M[:, None])[:, 0]


def _fed(row: TrainRow) -> tuple[int, ...]:
    """What a row feeds: its last token predicts nothing."""
    return (*row.turn.prompt_ids, *row.turn.completion_ids[:-1])


def _clipped(logprobs_M: Tensor, rows: Sequence[TrainRow]) -> Tensor:
    """Token losses [M]: -min(rho A, clip(rho) A), for A < 0 no more than -A DUAL_CLIP."""
    lengths = [len(row.turn.completion_ids) for row in rows]
    device = logprobs_M.device
    behaviour_M = torch.tensor([value for row in rows for value in row.turn.logprobs], device=device)
    advantage_M = torch.tensor(
        [row.advantage for row, length in zip(rows, lengths, strict=True) for _ in range(length)], device=device
    )
    rho_M = (logprobs_M - behaviour_M).exp()
    gain_M = torch.minimum(rho_M * advantage_M, rho_M.clamp(1 - CLIP, 1 + CLIP) * advantage_M)
    return -torch.where(advantage_M < 0, torch.maximum(gain_M, DUAL_CLIP * advantage_M), gain_M)


def _tensors(model: Any, role: str) -> dict[str, Tensor]:
    """What PEFT trains under a role's name, called as in mas: `LAYER.A`, `LAYER.B`."""
    found: Mapping[str, Tensor] = dict(model.named_parameters())
    tensors = {}
    for key, parameter in found.items():
        layer, _, rest = key.removeprefix("base_model.model.").partition(".lora_")
        part, _, owner = rest.partition(".")
        if owner == f"{role}.weight":
            tensors[f"{layer}.{part}"] = parameter
    return tensors
