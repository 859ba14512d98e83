"""Learners, batches and gradients for tests."""

from collections import defaultdict
from typing import Any

import torch
from loud import loud_adapter
from parts import make_turn
from torch import Tensor

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions
from mas.core.records import Turn
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow, train_rows
from mas.training.learner import Learner, MetricAccumulator

ROLES = ("planner", "executor", "verifier")
CHOICES = (8, 9, 10, 11)


def learner_of(base: BaseModel, options: LearnerOptions | None = None, *, spread: float = 0.2, **loss: Any) -> Learner:
    adapters = {name: loud_adapter(base, seed, spread) for seed, name in enumerate(ROLES)}
    return Learner(base, adapters, options or LearnerOptions(), LossOptions(**{"entropy": 0.0} | loss))


def rows_of(*roles: str, count: int = 12, advantage: float = 1.0, choices: tuple[int, ...] = ()) -> list[TrainRow]:
    """Rows of different lengths, some of which read the same input."""
    turns, advantages = [], []
    for role in roles or ROLES[:2]:
        for index in range(count):
            prompt = (5, 6, 7) if index % 3 else (4, 5, 6, 7, 12, 13)
            completion = (8, 9 + index % 4) if index % 2 else (8 + index % 3, 11, 9, 10)[: 1 + index % 4]
            turns.append(make_turn(role=role, prompt_ids=prompt, completion_ids=completion, choices=choices))
            advantages.append(advantage * (index - count / 2 + 0.5) / count)
    return batch_of(turns, advantages)


def batch_of(turns: list[Turn], advantages: list[float], **options: Any) -> list[TrainRow]:
    adapter_of = {name: name for name in ROLES}
    return train_rows(
        turns, advantages, adapter_of, **{"aggregation": "seq_mean_token_mean", "max_length": 8} | options
    )


def copy_of(weights: AdapterWeights) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in weights.parameters()]


def is_same(weights: AdapterWeights, before: list[Tensor]) -> bool:
    return all(torch.equal(now, then) for now, then in zip(weights.parameters(), before, strict=True))


def gradients(learner: Learner, rows: list[TrainRow]) -> Tensor:
    """All gradients of one batch as one vector."""
    loss_of(learner, rows)
    parameters = [tensor for weights in learner.adapters.values() for tensor in weights.parameters()]
    return torch.cat([tensor.grad.flatten() for tensor in parameters if tensor.grad is not None])


def loss_of(learner: Learner, rows: list[TrainRow]) -> float:
    """The loss of one batch; its gradients are left in the adapters."""
    return learner.accumulate(rows, defaultdict(MetricAccumulator))


def near(value: Tensor, wanted: Tensor, relative: float) -> bool:
    return bool((value - wanted).norm() <= relative * wanted.norm()) and bool(wanted.norm() > 0)


def on_policy(learner: Learner, rows: list[TrainRow], shift: float = 0.0) -> list[TrainRow]:
    """The rows with log-probabilities of the learner's own policy, minus a shift."""
    fresh = []
    for row in rows:
        turn = row.turn
        with torch.no_grad():
            inputs = [ScoredRow(turn.prompt_ids, turn.completion_ids, learner.adapters[row.adapter])]
            logits_LV = completion_logits(learner.base.model, learner.base.bank, inputs)[0]
        tokens_L1 = torch.tensor(turn.completion_ids)[:, None]
        own = torch.log_softmax(logits_LV, -1).gather(-1, tokens_L1)[:, 0] - shift
        same = {"prompt_ids": turn.prompt_ids, "completion_ids": turn.completion_ids, "choices": turn.choices}
        fresh.append(make_turn(role=turn.role, logprobs=tuple(own.tolist()), **same))
    return batch_of(fresh, [row.advantage for row in rows])
