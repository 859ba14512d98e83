"""Signals of a few tokens, their losses and gradients, for tests."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mas.algorithms.parts.losses.tokens import LossOptions, Signals, TokenLosses, token_losses


def signals_of(
    shift: Sequence[float],
    advantage: float | Sequence[float] = 1.0,
    *,
    logprobs: float | Sequence[float] = -1.0,
    rows: Sequence[int] | None = None,
    trajectories: Sequence[int] | None = None,
    behind: float | Sequence[float] = 0.0,
    reference: Sequence[float] | None = None,
    entropy: float = 0.7,
) -> Signals:
    """Tokens with log pi - log start = `shift` and log start - log behaviour = `behind`; one row unless said."""
    now_J = _numbers(logprobs, len(shift)).requires_grad_()
    start_J = now_J.detach() - _numbers(shift, len(shift))
    row_J = torch.tensor(rows if rows is not None else [0] * len(shift))
    return Signals(
        logprobs_J=now_J,
        start_J=start_J,
        behaviour_J=start_J - _numbers(behind, len(shift)),
        advantage_J=_numbers(advantage, len(shift)),
        row_J=row_J,
        trajectory_J=torch.tensor(trajectories) if trajectories is not None else row_J,
        entropy_J=torch.full_like(start_J, entropy).requires_grad_(),
        reference_J=None if reference is None else _numbers(reference, len(shift)),
    )


def losses_of(signals: Signals, **options: Any) -> TokenLosses:
    """Without entropy term unless said."""
    return token_losses(signals, LossOptions(**{"entropy": 0.0} | options))


def gradient_of(signals: Signals, weights: Sequence[float] | None = None, **options: Any) -> list[float]:
    """d (weighted sum of token losses) / d log pi of each token; weights are 1 unless given."""
    loss_J = losses_of(signals, **options).loss_J
    total = (loss_J * (1.0 if weights is None else loss_J.new_tensor(weights))).sum()
    (gradient_J,) = torch.autograd.grad(total, signals.logprobs_J)
    return [float(value) for value in gradient_J]


def _numbers(values: float | Sequence[float], count: int) -> Tensor:
    return torch.tensor([values] * count if isinstance(values, float) else values, dtype=torch.float64)
