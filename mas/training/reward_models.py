"""Rewards that are learned: models that say what each turn of a trajectory is paid.

Every reward model takes a step's trajectories, and gives a number for each of their turns.

`ImplicitModel`: an adapter phi that makes successes likelier than failures of the same group. A turn's score is
beta x log(phi / policy) over its tokens. phi starts as the bare base and learns by -log sigmoid(Q of a success - Q of a
failure), Q of a trajectory from its turns' scores, over all pairs of each group; groups with pairs weigh equally. The
policy is a constant here: what it is as the step begins.
Source: iStar, Online Process Reward Learning, arXiv 2509.19199.

`ProgressModel`: each turn's share in the outcome of its trajectory. A critic reads c_t at the last token of each turn,
and is taught (sum of c_t - R)^2. An adapter and a linear head for every policy adapter, both starting at c = 0.
Source: SPA-RL, arXiv 2505.20732, which trains it once, before the policy; here it learns in every step.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

import msgspec
from torch import Tensor

from mas.algorithms.parts.advantages.gae import CriticOptions
from mas.algorithms.parts.rewards.transforms import (
    RewardModelOptions,
    estimator_loss,
    preference_gradient,
    preference_loss,
    step_rewards,
    trajectory_score,
)
from mas.core.records import Episode, Group
from mas.core.seeds import derive_seed
from mas.training.batch import TrainRow, train_rows, trajectory_of
from mas.training.critic import Critic, Values
from mas.training.learner import Learner, Logprobs
from mas.training.optimiser import kept_tensors, restore_kept
from mas.training.step_metrics import MetricAccumulator, Metrics
from mas.training.updates.preference import LIKELIHOOD


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All that one agent said in one episode, in order, and whether the episode succeeded."""

    rows: tuple[TrainRow, ...]
    is_success: bool

    @property
    def adapter(self) -> str:
        """That it was said with."""
        return self.rows[0].adapter

    @property
    def group(self) -> Group:
        """It is compared within."""
        return self.rows[0].turn.group

    @property
    def outcome(self) -> float:
        """1 for a success, else 0."""
        return float(self.is_success)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScores:
    """What a model says of a step.

    Attributes:
        scores: of each trajectory a number for each turn.
        told: adapter -> metrics of what the model learned.
    """

    scores: Sequence[Sequence[float]]
    told: Mapping[str, Metrics]


class RewardModel(Protocol):
    """Learns from trajectories whose outcome is known, and shares no weight with the policy but the frozen base."""

    def step(self, trajectories: Sequence[Trajectory], *, lr_scale: float) -> StepScores:
        """Learn from a step's trajectories, then score them.

        Raises:
            TrainingError: a gradient is missing or not finite.
        """

    def tensors(self) -> Mapping[str, Tensor]:
        """All that the next step depends on, by name."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from `tensors()`.

        Raises:
            CheckpointError: they are of another model.
        """


def trajectories_of(episodes: Sequence[Episode], adapter_of: Mapping[str, str]) -> list[Trajectory]:
    """Of the roles that are trained (`adapter_of`: role -> adapter), episode by episode."""
    found = []
    for episode in episodes:
        rows = train_rows(episode.turns, [0.0] * len(episode.turns), adapter_of, aggregation="token_mean", max_length=1)
        own: dict[tuple[str, Group, str], list[TrainRow]] = {}
        for row in sorted(rows, key=lambda row: row.turn.place):
            own.setdefault(trajectory_of(row), []).append(row)
        found += [Trajectory(tuple(said), episode.success) for said in own.values()]
    return found


def by_adapter(trajectories: Sequence[Trajectory]) -> dict[str, list[int]]:
    """Adapter -> indices of its trajectories."""
    found: dict[str, list[int]] = {}
    for index, one in enumerate(trajectories):
        found.setdefault(one.adapter, []).append(index)
    return found


class ImplicitModel:
    """Satisfies `RewardModel`. `seed`: of its new adapters."""

    def __init__(self, policy: Learner, options: RewardModelOptions, seed: int) -> None:
        bank = policy.base.bank
        fresh = {
            name: bank.create(weights.options, derive_seed("implicit", seed, name))
            for name, weights in policy.adapters.items()
        }
        own = policy.options.model_copy(update={"lr": options.lr, "epochs": 1, "minibatches": 1})
        self.options = options
        self.policy = policy
        self.phi = Learner(policy.base, fresh, own, LIKELIHOOD)

    def step(self, trajectories: Sequence[Trajectory], *, lr_scale: float) -> StepScores:
        """See `RewardModel`. An adapter whose groups hold no success and failure together learns nothing."""
        rows = [row for one in trajectories for row in one.rows]
        old = self.policy.logprobs(rows)
        self.phi.begin(lr_scale)
        scores = self._scores(trajectories, rows, old)
        before = self._pairs(trajectories, scores)
        for _ in range(self.options.epochs):
            slopes = self._slopes(trajectories, scores)
            if not slopes:
                break
            self.phi.update(slopes, defaultdict(MetricAccumulator), None)
            scores = self._scores(trajectories, rows, old)
        after = self._pairs(trajectories, scores)
        told = {name: _told(before[name], after[name]) for name in by_adapter(trajectories)}
        return StepScores(scores=scores, told=told)

    def tensors(self) -> dict[str, Tensor]:
        return kept_tensors(self.phi.adapter_tensors(), self.phi.optimisers)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        restore_kept(self.phi.adapter_tensors(), self.phi.optimisers, tensors, "implicit reward model")

    def _scores(self, trajectories: Sequence[Trajectory], rows: Sequence[TrainRow], old: Logprobs) -> list[list[float]]:
        now = self.phi.logprobs(rows)
        ratios = {turn: [own - other for own, other in zip(now[turn], old[turn], strict=True)] for turn in now}
        beta = self.options.beta
        return [step_rewards([ratios[id(row.turn)] for row in one.rows], beta=beta) for one in trajectories]

    def _pairs(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Sequence[float]]
    ) -> "dict[str, list[_Group]]":
        """Adapter -> its groups that hold successes and failures."""
        members: dict[tuple[str, Group], list[int]] = defaultdict(list)
        for index, one in enumerate(trajectories):
            members[one.adapter, one.group].append(index)
        found: dict[str, list[_Group]] = {name: [] for name, _ in members}
        for (name, _), own in members.items():
            won = [index for index in own if trajectories[index].is_success]
            lost = [index for index in own if not trajectories[index].is_success]
            if won and lost:
                values = {index: trajectory_score(scores[index], self.options.pooling) for index in own}
                found[name].append(_Group(tuple(won), tuple(lost), values))
        return found

    def _slopes(self, trajectories: Sequence[Trajectory], scores: Sequence[Sequence[float]]) -> list[TrainRow]:
        """Rows whose loss, -advantage x log phi, has the slope of the preference loss."""
        rows = []
        for groups in self._pairs(trajectories, scores).values():
            for group in groups:
                for index, slope in group.slopes().items():
                    own = trajectories[index].rows
                    share = self.options.beta / (len(own) if self.options.pooling == "mean" else 1) / len(groups)
                    rows += [replace(row, advantage=-slope * share, weight=1.0) for row in own]
        return sorted(rows, key=lambda row: row.adapter)


@dataclass(frozen=True, slots=True)
class _Group:
    """Indices of trajectories of one group, and the Q of each."""

    won: tuple[int, ...]
    lost: tuple[int, ...]
    values: Mapping[int, float]

    def slopes(self) -> dict[int, float]:
        """d loss / d Q."""
        up, down = preference_gradient(*self._values())
        return dict(zip((*self.won, *self.lost), (*up, *down), strict=True))

    def loss(self) -> float:
        """Mean over its pairs."""
        found = preference_loss(*self._values())
        assert found is not None
        return found

    def right(self) -> float:
        """Share of pairs in which the success scores more."""
        won, lost = self._values()
        return fmean(good > bad for good in won for bad in lost)

    def _values(self) -> tuple[list[float], list[float]]:
        return [self.values[index] for index in self.won], [self.values[index] for index in self.lost]


def _told(before: Sequence[_Group], after: Sequence[_Group]) -> Metrics:
    """Of one adapter; no loss is told where there was no pair."""
    told = {"pairs": float(sum(len(group.won) * len(group.lost) for group in before))}
    if before:
        told |= {
            "loss": fmean(group.loss() for group in before),
            "loss_after": fmean(group.loss() for group in after),
            "accuracy": fmean(group.right() for group in after),
        }
    return told


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
        return self.estimator.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
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
