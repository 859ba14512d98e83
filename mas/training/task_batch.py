"""What a step plays: the batch of its tasks, and the orders that rollout workers get of it."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from mas.core.environment import Task
from mas.core.records import Episode
from mas.core.scenario import Pick
from mas.training.opponents import Matchup
from mas.training.tasks.plan import Planned

PlayedGroups = Sequence[Sequence[Episode]]
"""The episodes of each task, as they were played."""


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """What a step plays. `trained`: roles that learn in it; `faced`: task id -> who plays against the learner;
    `speaking`: role -> `NAME@VERSION`, where workers play it."""

    step: int
    trained: Container[str]
    planned: Sequence[Planned]
    faced: dict[str, Matchup]
    speaking: dict[str, str] = field(default_factory=dict)


class TaskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A task for a worker: with the setup and these adapters its episodes are determined.

    Attributes:
        step: how many are done.
        speaking: role -> `NAME@VERSION`.
    """

    step: int
    pick: Pick
    seed: int
    speaking: dict[str, str]


class TaskPlayer(Protocol):
    """Plays tasks in other processes."""

    async def play(self, order: TaskOrder) -> Sequence[Episode]:
        """The episodes of a task.

        Raises:
            TrainingError: it cannot be played.
        """


class ProgramPlayer(TaskPlayer, Protocol):
    """Plays all tasks in programs of the user's, those of evaluations too."""

    @property
    def has_tasks(self) -> bool:
        """Whether the programs play the tasks of the scenario; False: tasks of their own, which are never held out."""

    async def evaluate(
        self, tasks: Sequence[Task], *, temperature: float | None, seed: int, on_played: Callable[[], None]
    ) -> list[Episode]:
        """An episode of each task.

        Args:
            temperature: of all roles; None: each role's own.
            on_played: told of every episode.
        """
