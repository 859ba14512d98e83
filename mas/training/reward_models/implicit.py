"""An implicit process reward model: an adapter phi that makes successes likelier than failures of the same group.

A turn's score is beta x log(phi / policy) over its tokens. phi starts as the bare base and learns by
-log sigmoid(Q of a success - Q of a failure), Q of a trajectory from its turns' scores, over all pairs of each group;
groups with pairs weigh equally. The policy is a constant here: what it is as the step begins.
Source: iStar, Online Process Reward Learning, arXiv 2509.19199.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from torch import Tensor

from mas.config.rewards import RewardModelOptions
from mas.core.records import Group
from mas.core.seeds import derive_seed
from mas.training.batch import TrainRow
from mas.training.learner import Learner, Logprobs
from mas.training.metric_accumulator import MetricAccumulator, Metrics
from mas.training.optimiser import kept_tensors, restore_kept
from mas.training.reward_models.model import StepScores, Trajectory, by_adapter
from mas.training.shaping.implicit import preference_gradient, preference_loss, step_rewards, trajectory_score
from mas.training.updates.preference import LIKELIHOOD


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
        """phi's weights and optimisers."""
        return kept_tensors(self._parameters(), self.phi.optimisers)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `RewardModel`."""
        restore_kept(self._parameters(), self.phi.optimisers, tensors, "implicit reward model")

    def _parameters(self) -> dict[str, Sequence[Tensor]]:
        return {name: weights.parameters() for name, weights in self.phi.adapters.items()}

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
