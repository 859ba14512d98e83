"""What a step plays: the source's picks as tasks of their scenarios, and how they went."""

from collections.abc import Container, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from mas.config.options import RewardOptions
from mas.core.environment import Task
from mas.core.errors import CheckpointError, ConfigError
from mas.core.records import Episode
from mas.core.scenario import Finite, Pick, Scenario, TaskOutcome, TaskSource
from mas.training.advantages.group import group_statistics
from mas.training.rewards import total_reward
from mas.training.setup import TrainSetup
from mas.training.tasks.arms import Arm, training_size
from mas.training.tasks.build import build_source
from mas.training.tasks.cursors import Fresh

_ROUNDS = 2**40
"""A step draws again as if it were one that is this much later: tasks that no step draws."""


class Planned(NamedTuple):
    """One task to play, in an environment of its scenario."""

    pick: Pick
    scenario: Scenario
    task: Task


class TaskPlan:
    """A task source with the scenarios of its arms."""

    def __init__(self, source: TaskSource, arms: Mapping[str, Arm]) -> None:
        self._source, self._arms = source, arms
        self._outcomes: Sequence[TaskOutcome] = ()
        self._drawn: frozenset[Pick] = frozenset()
        made_of = arms if not self.is_stateless else {}
        self._made_of = {name: arm.scenario.fingerprint() for name, arm in made_of.items()}

    @property
    def scenarios(self) -> list[Scenario]:
        """Where tasks come from."""
        return [arm.scenario for arm in self._arms.values()]

    def draw(self, step: int, count: int, number: int = 0) -> list[Planned]:
        """Tasks of a step.

        Args:
            step: how many are done.
            number: of draws that the step made before. Tasks that they gave come again only where none else is left.
        """
        drawn = self._drawn if number else frozenset[Pick]()
        picks = self._source.draw(step + number * _ROUNDS, count, drawn)
        self._drawn = drawn.union(picks)
        picked = [(pick, self._arms[pick.arm]) for pick in picks]
        return [Planned(pick, arm.scenario, arm.task(pick.index)) for pick, arm in picked]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        """How all tasks of the step went, as they were drawn, without those of which no episode could be played."""
        self._outcomes = outcomes
        self._source.tell(outcomes)

    @property
    def is_stateless(self) -> bool:
        """Whether the seed and the step's number alone say what is drawn, from a scenario that never ends."""
        return isinstance(self._source, Fresh) and training_size(self.scenarios[0]) is None

    def state(self) -> dict[str, Any]:
        """All that the next draw depends on, as JSON can hold it."""
        if self.is_stateless:
            return {}
        return {"source": dict(self._source.state()), "arms": dict(self._made_of)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the plan was whose `state` this is.

        Raises:
            CheckpointError: it is none of this source, or the arms have other tasks now.
        """
        if self.is_stateless and not state:
            return
        try:
            if list(state["arms"]) != list(self._arms):
                raise ValueError(
                    f"it has the arms {list(state['arms'])}, in this order; now they are {list(self._arms)}"
                )
            for name, fingerprint in self._made_of.items():
                if state["arms"][name] != fingerprint:
                    raise ValueError(f"the tasks of arm {name!r} are others than the run began with")
            self._source.restore(state["source"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"the task source cannot go on from the checkpoint: {error}; restore what train.tasks, its scenarios "
                "and their files were, or train a new run elsewhere"
            ) from error

    def metrics(self) -> dict[str, Any]:
        """How the arms of the last step went, and where the source stands; empty where it stands nowhere."""
        if self.is_stateless:
            return {}
        arms = {}
        for name in self._arms:
            own = [outcome for outcome in self._outcomes if outcome.pick.arm == name]
            if own:
                arms[name] = {"count": len(own)} | {
                    key: fmean(getattr(outcome, key) for outcome in own) for key in ("success", "reward", "flat")
                }
        return {"arms": arms, **self._source.metrics()}


def plan_tasks(setup: TrainSetup) -> TaskPlan:
    """What `train.tasks` says, checked. Needs no model.

    Raises:
        ConfigError: more tasks are wanted than there are.
    """
    scenario, tasks = setup.scenario, setup.train.eval_tasks
    if isinstance(scenario, Finite) and tasks > scenario.size("eval"):
        raise ConfigError(
            f"train.eval_tasks is {tasks}, but scenario {scenario.name!r} has {scenario.size('eval')} tasks to "
            "evaluate on: set it to that at most"
        )
    sizes = {name: training_size(arm.scenario) for name, arm in setup.arms.items()}
    drawn = setup.train.tasks
    is_again = drawn.source == "epochs" or drawn.replay.share > 0 or any(size is not None for size in sizes.values())
    if setup.algorithm.sampler.replay is not None and not is_again:
        raise ConfigError(
            f"algorithm.sampler.replay has successes of tasks that come again, and train.tasks.source={drawn.source} "
            f"never plays a task of {scenario.name!r} twice: write train.tasks.source=epochs train.tasks.count=64"
        )
    return TaskPlan(build_source(setup.train, sizes), setup.arms)


def outcome_of(
    pick: Pick, episodes: Sequence[Episode], rewards: RewardOptions, trained: Container[str]
) -> TaskOutcome | None:
    """How a task went, None where no episode of it could be played to its end. `trained`: roles whose groups count."""
    played = [episode for episode in episodes if episode.status == "done"]
    if not played:
        return None
    turns = [turn for episode in played for turn in episode.turns if turn.role in trained]
    rows = {(turn.group, turn.trajectory): total_reward(turn.rewards, rewards) for turn in turns}
    groups = group_statistics(list(rows.values()), [group for group, _ in rows])
    compared = groups.groups - groups.single
    return TaskOutcome(
        pick=pick,
        success=fmean(episode.success for episode in played),
        reward=fmean(sum(episode.rewards.values()) for episode in played),
        flat=groups.zero_variance / compared if compared else 1.0,
    )
