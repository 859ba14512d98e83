"""Which update follows which `algorithm.update`, what its learner minimises, and which reward model pays its turns."""

from collections.abc import Mapping

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.transforms import RewardModelOptions
from mas.config.custom_algorithm import CustomAlgorithm
from mas.training.learner import Learner
from mas.training.reward_models import ImplicitModel, ProgressModel, RewardModel
from mas.training.updates.policy_gradient import PolicyGradient
from mas.training.updates.ppo import Ppo
from mas.training.updates.preference import LIKELIHOOD, Preference
from mas.training.updates.rewarded import Rewarded
from mas.training.updates.update import Update

_KINDS: Mapping[str, type[ProgressModel] | type[ImplicitModel]] = {
    "progress": ProgressModel,
    "implicit": ImplicitModel,
}


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


def build_reward_model(learner: Learner, options: RewardModelOptions, seed: int) -> RewardModel:
    """The model that the options name, for the learner's adapters."""
    return _KINDS[options.kind](learner, options, seed)
