"""What every reward model has in common: a step's trajectories in, a number for each of their turns out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from mas.core.records import Episode, Group
from mas.training.batch import TrainRow, train_rows, trajectory_of
from mas.training.losses.tokens import Metrics


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
        for row in sorted(rows, key=lambda row: (row.turn.turn, row.turn.visit)):
            own.setdefault(trajectory_of(row), []).append(row)
        found += [Trajectory(tuple(said), episode.success) for said in own.values()]
    return found


def by_adapter(trajectories: Sequence[Trajectory]) -> dict[str, list[int]]:
    """Adapter -> indices of its trajectories."""
    found: dict[str, list[int]] = {}
    for index, one in enumerate(trajectories):
        found.setdefault(one.adapter, []).append(index)
    return found
