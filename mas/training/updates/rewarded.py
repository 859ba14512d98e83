"""An update whose turns are paid by a reward model, which learns in turn with the policy, and how it pays them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from torch import Tensor

from mas.algorithms.parts.rewards.names import MODEL, OWN
from mas.algorithms.parts.rewards.transforms import RewardModelOptions, clip_rewards, delta_rewards, fused_rewards
from mas.core.environment import LARGEST, is_bounded
from mas.core.errors import TrainingError
from mas.core.records import Episode, Turn
from mas.training.reward_models import RewardModel, Trajectory, trajectories_of
from mas.training.sampling.episode_facts import Grounded
from mas.training.updates.update import Update, UpdateResult

_PREFIX = "reward_model/"
"""Begins the names of the model's own tensors."""


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
        return self.update.state()

    def tensors(self) -> Mapping[str, Tensor]:
        """Of the policy's update and of the model."""
        own = {f"{_PREFIX}{name}": tensor for name, tensor in self.model.tensors().items()}
        return {**self.update.tensors(), **own}

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        own = {name.removeprefix(_PREFIX): one for name, one in tensors.items() if name.startswith(_PREFIX)}
        self.update.restore(state, {name: one for name, one in tensors.items() if not name.startswith(_PREFIX)})
        self.model.restore(own)


def payments(scores: Sequence[float], grounded: Sequence[bool], options: RewardModelOptions) -> list[float]:
    """What the turns of a trajectory are paid: the scores, bounded, and more where an action was grounded.

    Args:
        scores: of T turns in order. grounded: whether each one's output parsed and the team's action was legal.

    Raises:
        ValueError: the two lengths differ.
    """
    bounded = list(scores)
    if options.bound in ("clip", "both"):
        bounded = clip_rewards(bounded, options.eta)
    if options.bound in ("delta", "both"):
        bounded = delta_rewards(bounded)
    return fused_rewards(bounded, grounded, weight=options.grounded) if options.grounded else bounded


def with_payments(
    episodes: Sequence[Episode], paid: Mapping[str, tuple[float, float]], options: RewardModelOptions
) -> list[Episode]:
    """The episodes with the model's term; turns that it did not score stay as they are.

    Args:
        paid: turn id -> what it is paid, and what its whole trajectory is.
    """
    return [
        msgspec.structs.replace(
            episode,
            turns=tuple(_paid(turn, *paid[turn.id], options) if turn.id in paid else turn for turn in episode.turns),
        )
        for episode in episodes
    ]


def _paid(turn: Turn, own: float, whole: float, options: RewardModelOptions) -> Turn:
    if options.joins == "step":
        return msgspec.structs.replace(turn, paid={**turn.paid, MODEL: own})
    term, is_alone = f"{OWN}{MODEL}", options.joins == "alone"
    rest, all_rest = ({}, {}) if is_alone else (turn.paid, turn.rewards)
    return msgspec.structs.replace(turn, paid={**rest, term: own}, rewards={**all_rest, term: whole})


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
