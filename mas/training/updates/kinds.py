"""Which update follows which `algorithm.update`, and what its learner minimises.

`Rewarded` is an update whose turns are paid by a reward model, which learns in turn with the policy.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from mas.config.algorithm import AlgorithmOptions
from mas.config.custom_algorithm import CustomAlgorithm
from mas.config.rewards import RewardModelOptions
from mas.config.updates import LossOptions
from mas.core.environment import LARGEST, is_bounded
from mas.core.errors import TrainingError
from mas.core.records import Episode
from mas.training.learner import Learner
from mas.training.reward_models import ImplicitModel, ProgressModel, RewardModel, Trajectory, trajectories_of
from mas.training.shaping.transforms import Grounded, payments, with_payments
from mas.training.updates.policy_gradient import PolicyGradient
from mas.training.updates.ppo import Ppo
from mas.training.updates.preference import LIKELIHOOD, Preference
from mas.training.updates.update import Update, UpdateResult

_KINDS: Mapping[str, type[ProgressModel] | type[ImplicitModel]] = {
    "progress": ProgressModel,
    "implicit": ImplicitModel,
}
_PREFIX = "reward_model/"


def loss_of(algorithm: AlgorithmOptions) -> LossOptions:
    """The loss of a token."""
    return LIKELIHOOD if algorithm.update == "preference" else algorithm.loss


def build_update(
    learner: Learner, algorithm: AlgorithmOptions, seed: int, method: CustomAlgorithm | None = None
) -> Update:
    """The update that the options name; `learner` minimises `loss_of` them. `seed`: of critics and reward models.

    `method`: functions of the algorithm's own, which come first.
    """
    update = _build(learner, algorithm, seed, method)
    options = algorithm.reward.model
    return update if options is None else Rewarded(update, build_reward_model(learner, options, seed), options)


def _build(learner: Learner, algorithm: AlgorithmOptions, seed: int, method: CustomAlgorithm | None) -> Update:
    own: Update | None = None if method is None else method.update(learner, algorithm)
    if own is not None:
        return own
    if algorithm.update == "preference":
        return Preference(learner, algorithm)
    if algorithm.advantage.baseline == "critic":
        return Ppo(learner, algorithm, seed)
    return PolicyGradient(learner, algorithm, None if method is None else method.advantages)


class Rewarded:
    """First the model learns from the episodes and pays their turns, then the policy learns from what they were paid.

    Neither is changed by the other's learning: they have adapters of their own. Turns of roles that are not trained in
    a step are not paid by the model.
    """

    def __init__(self, update: Update, model: RewardModel, options: RewardModelOptions) -> None:
        self.update = update
        self.model = model
        self.options = options

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> UpdateResult:
        """See `Update`; metrics of the model are in `reward_model`, by adapter.

        Raises:
            TrainingError: the model pays a turn what is no finite number; all that it will say is spoilt.
        """
        trajectories = trajectories_of(episodes, adapter_of)
        scored = self.model.step(trajectories, lr_scale=lr_scale)
        paid: dict[str, tuple[float, float]] = {}
        for one, scores in zip(trajectories, scored.scores, strict=True):
            own = payments(scores, [Grounded.of(row.turn).is_grounded for row in one.rows], self.options)
            whole = _whole(own, one)
            paid |= {row.turn.id: (value, whole) for row, value in zip(one.rows, own, strict=True)}
        rewarded = with_payments(episodes, paid, self.options)
        improved = self.update.improve(rewarded, adapter_of, step=step, lr_scale=lr_scale)
        return replace(improved, metrics={**improved.metrics, "reward_model": dict(scored.told)})

    def state(self) -> Mapping[str, Any]:
        """Of the policy's update."""
        return self.update.state()

    def tensors(self) -> Mapping[str, Tensor]:
        """Of the policy's update and of the model."""
        own = {f"{_PREFIX}{name}": tensor for name, tensor in self.model.tensors().items()}
        return {**self.update.tensors(), **own}

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See `Update`."""
        own = {name.removeprefix(_PREFIX): one for name, one in tensors.items() if name.startswith(_PREFIX)}
        self.update.restore(state, {name: one for name, one in tensors.items() if not name.startswith(_PREFIX)})
        self.model.restore(own)


def build_reward_model(learner: Learner, options: RewardModelOptions, seed: int) -> RewardModel:
    """The model that the options name, for the learner's adapters."""
    return _KINDS[options.kind](learner, options, seed)


def _whole(own: Sequence[float], trajectory: Trajectory) -> float:
    """What a trajectory is paid by the model: the sum over its turns."""
    wrong = next((place for place, value in enumerate(own) if not is_bounded(value)), None)
    if wrong is not None:
        raise TrainingError(
            f"the reward model of adapter {trajectory.adapter!r} pays turn {trajectory.rows[wrong].turn.id!r} "
            f"{own[wrong]}: a reward must be a finite number between {-LARGEST:g} and "
            f"{LARGEST:g}; lower its learning rate, the algorithm's option reward_lr"
        )
    return math.fsum(own)
