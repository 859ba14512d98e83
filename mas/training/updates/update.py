"""The contract of updates: one makes better adapters of a step's turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from mas.core.records import NO_COST, Cost, Episode
from mas.training.batch import TrainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What an update did.

    Attributes:
        rows: what was learned from; the canary is asked with some of them.
        advantages: of every turn of the episodes, in order; metrics show their spread.
        learned: adapter -> metrics, of the adapters that changed.
        metrics: what else there is to tell, at the top of the step's metrics.
        cost: of what improving asked an engine; budgets count it as they count sampling.
        optimiser_steps: how often weights were changed.
        notes: what people may want to read of it, as JSON.
    """

    rows: Sequence[TrainRow]
    advantages: Sequence[float]
    learned: Mapping[str, Mapping[str, float]]
    metrics: Mapping[str, Any]
    cost: Cost = NO_COST
    optimiser_steps: int = 0
    notes: Sequence[Mapping[str, Any]] = ()


class PolicyLearner(Protocol):
    """What a policy gradient needs of a learner: `mas.training.learner.Learner`, or one elsewhere."""

    def step(self, rows: Sequence[TrainRow], *, lr_scale: float = 1.0) -> dict[str, dict[str, float]]:
        """Improve every adapter that has rows; returns metrics per adapter. `lr_scale` multiplies the learning rate.

        Raises:
            TrainingError: a rule of learning was broken.
        """

    def logprobs(self, rows: Sequence[TrainRow], *, is_reference: bool = False) -> Mapping[int, Sequence[float]]:
        """What the policy in training or the reference gives the rows' completions now, by the identity of turns."""

    def entropies(self, rows: Sequence[TrainRow]) -> Mapping[int, Sequence[float]]:
        """Of the policy in training at every token of the completions, in nats."""


class Update(Protocol):
    """Changes the learner's adapters by a step's episodes."""

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> UpdateResult:
        """One step.

        Args:
            adapter_of: role -> adapter, for the roles that are trained in this step.
            step: from 1. lr_scale: what the learning rate is multiplied by.
        """

    def state(self) -> Mapping[str, Any]:
        """What the next step depends on beside the learner, as JSON; by default nothing."""
        return {}

    def tensors(self) -> Mapping[str, Tensor]:
        """What else the next step depends on, as tensors by name; by default none."""
        return {}

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from `state()` and `tensors()`.

        Raises:
            CheckpointError: they do not fit this update.
        """
