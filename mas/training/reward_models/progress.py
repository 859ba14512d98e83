"""A progress estimator: each turn's share in the outcome of its trajectory.

A critic reads c_t at the last token of each turn, and is taught (sum of c_t - R)^2. An adapter and a linear head for
every policy adapter, both starting at c = 0.
Source: SPA-RL, arXiv 2505.20732, which trains it once, before the policy; here it learns in every step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import msgspec
from torch import Tensor

from mas.config.rewards import RewardModelOptions
from mas.config.updates import CriticOptions
from mas.core.seeds import derive_seed
from mas.training.batch import TrainRow
from mas.training.critic import Critic, Values
from mas.training.learner import Learner
from mas.training.metric_accumulator import Metrics
from mas.training.reward_models.model import StepScores, Trajectory, by_adapter
from mas.training.shaping.progress import estimator_loss


class ProgressModel:
    """Satisfies `RewardModel`. `seed`: of its new adapters."""

    def __init__(self, learner: Learner, options: RewardModelOptions, seed: int) -> None:
        self._epochs = options.epochs
        own = derive_seed("progress", seed)
        self.estimator = Critic(
            learner, CriticOptions(lr=options.lr, epochs=1, minibatches=1), own, what="progress estimator"
        )

    def step(self, trajectories: Sequence[Trajectory], *, lr_scale: float) -> StepScores:
        """See `RewardModel`. The scores of a trajectory are its contributions c_t."""
        read = [[_at_last_token(row) for row in one.rows] for one in trajectories]
        rows = [row for own in read for row in own]
        values = self.estimator.values(rows)
        before = _losses(trajectories, _shares(read, values))
        for _ in range(self._epochs):
            self.estimator.step(rows, _targets(trajectories, read, values), values, lr_scale=lr_scale)
            values = self.estimator.values(rows)
        shares = _shares(read, values)
        after = _losses(trajectories, shares)
        told: dict[str, Metrics] = {
            name: {"loss": before[name], "loss_after": after[name], "contribution": _mean(shares, own)}
            for name, own in by_adapter(trajectories).items()
        }
        return StepScores(scores=shares, told=told)

    def tensors(self) -> dict[str, Tensor]:
        """The estimator's weights and optimisers."""
        return self.estimator.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `RewardModel`."""
        self.estimator.restore(tensors)


def _at_last_token(row: TrainRow) -> TrainRow:
    """A row whose one value is read where the turn's last token stands: what follows it is no matter."""
    turn = row.turn
    whole = turn.prompt_ids + turn.completion_ids
    last = turn.completion_ids[-1:]
    return replace(
        row, turn=msgspec.structs.replace(turn, prompt_ids=whole, completion_ids=last, logprobs=(0.0,), choices=())
    )


def _targets(trajectories: Sequence[Trajectory], read: Sequence[Sequence[TrainRow]], values: Values) -> Values:
    """c_t + R - sum of c: the slope of (c_t - target)^2 is that of (sum of c - R)^2, at every turn."""
    targets: dict[int, list[float]] = {}
    for one, rows in zip(trajectories, read, strict=True):
        missing = one.outcome - math.fsum(values[id(row.turn)][0] for row in rows)
        targets |= {id(row.turn): [values[id(row.turn)][0] + missing] for row in rows}
    return targets


def _shares(read: Sequence[Sequence[TrainRow]], values: Values) -> list[list[float]]:
    return [[values[id(row.turn)][0] for row in rows] for rows in read]


def _losses(trajectories: Sequence[Trajectory], shares: Sequence[Sequence[float]]) -> dict[str, float]:
    """Adapter -> mean over its trajectories."""
    losses = [estimator_loss(own, one.outcome) for one, own in zip(trajectories, shares, strict=True)]
    return {name: fmean(losses[index] for index in own) for name, own in by_adapter(trajectories).items()}


def _mean(shares: Sequence[Sequence[float]], own: Sequence[int]) -> float:
    return fmean(share for index in own for share in shares[index])
