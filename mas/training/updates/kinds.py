"""Which update follows which `algorithm.update`, and what its learner minimises."""

from mas.config.algorithm import AlgorithmOptions
from mas.config.losses import LossOptions
from mas.training.learner import Learner
from mas.training.updates.policy_gradient import PolicyGradient
from mas.training.updates.ppo import Ppo
from mas.training.updates.preference import LIKELIHOOD, Preference
from mas.training.updates.update import Update


def loss_of(algorithm: AlgorithmOptions) -> LossOptions:
    """The loss of a token."""
    return LIKELIHOOD if algorithm.update == "preference" else algorithm.loss


def build_update(learner: Learner, algorithm: AlgorithmOptions, seed: int) -> Update:
    """The update that the options name; `learner` minimises `loss_of` them. `seed`: of critics."""
    if algorithm.update == "preference":
        return Preference(learner, algorithm)
    if algorithm.advantage.baseline == "critic":
        return Ppo(learner, algorithm, seed)
    return PolicyGradient(learner, algorithm)
