"""A baseline per key that is carried over batches: role-conditioned advantage estimation (RAE)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mas.training.advantages.members import check_finite, check_lengths


@dataclass(slots=True)
class Running:
    """An exponential moving mean of the reward per key, each read before it learns of the reward.

    A = R - b, then b <- decay b + (1 - decay) R; b starts at 0. The order of a batch matters, so it is given: labels
    that do not depend on which episode ended first. `means` is plain JSON and all there is to save.
    Source: SPIRAL, arXiv 2506.24119 (key: role, or game and role where several games are mixed).

    Raises:
        ValueError: `decay` is not in [0, 1).
    """

    decay: float = 0.95
    means: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"the decay of a running baseline must be at least 0 and below 1, not {self.decay}")

    def advantages(self, rewards: Sequence[float], keys: Sequence[str], order: Sequence[Any]) -> list[float]:
        """One advantage per reward, in the order of the rewards.

        Args:
            rewards: N scalars, one per key and trajectory: repeat a trajectory's result, not its reward.
            keys: N keys of baselines.
            order: N labels that can be compared with each other, e.g. episode ids; they say which reward comes first.

        Raises:
            ValueError: lengths differ, a reward is no number between -1e90 and 1e90, or two rewards of one key have the
                same label.
        """
        check_finite(rewards)
        check_lengths({"rewards": rewards, "keys": keys, "labels of order": order})
        _check_labels(keys, order)
        advantages = [0.0] * len(rewards)
        for i in sorted(range(len(rewards)), key=lambda index: order[index]):
            mean = self.means.get(keys[i], 0.0)
            advantages[i] = rewards[i] - mean
            self.means[keys[i]] = self.decay * mean + (1 - self.decay) * rewards[i]
        return advantages

    def state(self) -> Mapping[str, float]:
        """A copy of all baselines, for a checkpoint: `Running(decay, dict(state))` goes on from it."""
        return dict(self.means)


def _check_labels(keys: Sequence[str], order: Sequence[Hashable]) -> None:
    seen = set()
    for place in zip(keys, order, strict=True):
        if place in seen:
            raise ValueError(f"two rewards of key {place[0]!r} have the label {place[1]!r}: their order is not given")
        seen.add(place)
