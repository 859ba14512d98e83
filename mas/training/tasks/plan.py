"""What a step plays: the source's picks as tasks of their scenarios, and how they went.

An arm is a scenario that tasks come from. Without arms a step takes `Fresh` tasks of the run's scenario. A `TaskBatch`
is what a step plays, and a `TaskOrder` what a rollout worker gets of it.
"""

from collections.abc import Callable, Container, Mapping, Sequence, Set
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any, NamedTuple, Protocol

import msgspec

from mas.algorithms.parts.advantages.group import group_statistics
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.config.options import ScenarioOptions
from mas.config.tasks import TaskOptions
from mas.core.environment import Task
from mas.core.errors import CheckpointError, ConfigError
from mas.core.records import Episode
from mas.core.scenario import Finite, Pick, Scenario, SplitByContent, TaskOutcome, TaskSource
from mas.core.seeds import derive_seed
from mas.graph.load import find_team

Builder = Callable[[ScenarioOptions], Scenario]
"""Makes the scenario that options name."""
OWN = "own"
"""The one arm of a source that has no others: the run's scenario."""
_ATTEMPTS = 1000
_ELSEWHERE = 10**12
_ROUNDS = 2**40
"""A step draws again as if it were one that is this much later: tasks that no step draws."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A scenario that training takes tasks from.

    `prefix`: begins the ids of its tasks, so that those of two arms differ. `judge`: the run's own scenario, where it
    may hold out for the evaluation what this one has for training; None: it does not.
    """

    scenario: Scenario
    prefix: str = ""
    judge: SplitByContent | None = None

    def task(self, index: int) -> Task:
        """The index-th training task; another one instead if the evaluation has that.

        Raises:
            ConfigError: the evaluation seems to have them all.
        """
        size = training_size(self.scenario)
        for attempt in range(_ATTEMPTS):
            number = index + attempt * _ELSEWHERE if size is None else (index + attempt) % size
            task = self.scenario.task("train", number)
            if self.judge is None or not self._is_held_out(self.judge, task):
                return msgspec.structs.replace(task, id=self.prefix + task.id)
        raise ConfigError(
            f"{self.prefix}{index}: {_ATTEMPTS} tasks of this arm are all in the evaluation of {self.scenario.name!r}"
        )

    def _is_held_out(self, judge: SplitByContent, task: Task) -> bool:
        assert isinstance(self.scenario, SplitByContent)
        return judge.holds_out(self.scenario.content_of(task))


def training_size(scenario: Scenario) -> int | None:
    """How many training tasks a scenario has, None where they never end."""
    return scenario.size("train") if isinstance(scenario, Finite) else None


def build_arms(
    tasks: TaskOptions, run: ScenarioOptions, team: str, scenario: Scenario, build: Builder
) -> dict[str, Arm]:
    """Every arm of `train.tasks` by its name; without arms the run's scenario alone.

    Args:
        run: names the run's own scenario, which is `scenario`. team: as `algorithm.team` names it.
        build: makes the others.

    Raises:
        ConfigError: a scenario that cannot be made, one with another team, or one whose training tasks cannot be kept
            apart from the run's evaluation.
    """
    options = tasks.arms
    if not options:
        return {OWN: Arm(scenario)}
    made: Mapping[str, Scenario] = {
        name: _made(f"train.tasks.arms.{name}", arm.scenario, arm.options, run, build) for name, arm in options.items()
    }
    return {name: _arm(name, one, team, scenario) for name, one in made.items()}


def _made(key: str, name: str | None, options: Mapping[str, object], run: ScenarioOptions, build: Builder) -> Scenario:
    is_own = name is None or name == run.name
    wanted = ScenarioOptions(
        name=run.name if name is None else name, options={**(run.options if is_own else {}), **options}
    )
    try:
        return build(wanted)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _arm(name: str, scenario: Scenario, team: str, own: Scenario) -> Arm:
    key = f"train.tasks.arms.{name}"
    if find_team(scenario, team) != find_team(own, team):
        raise ConfigError(
            f"{key}: team {team!r} of {scenario.name!r} with its options is another than that of {own.name!r}, and one "
            "team is trained: choose arms with equal teams, or a team from a file by algorithm.team"
        )
    why_not_apart = getattr(own, "why_not_apart", None)  # of a user's class
    if why_not_apart is not None and (why := why_not_apart(scenario)) is not None:
        raise ConfigError(f"{key}: {why}")
    if scenario.name != own.name or scenario.fingerprint() == own.fingerprint():
        return Arm(scenario, prefix=f"{name}:")
    if not isinstance(own, SplitByContent) or not isinstance(scenario, SplitByContent):
        raise ConfigError(
            f"{key}: scenario {own.name!r} does not say which contents it holds out, so that training with other "
            "options could play what is evaluated; give it content_of and holds_out (mas.core.scenario.SplitByContent)"
        )
    return Arm(scenario, prefix=f"{name}:", judge=own)


def first_index(*parts: str | int) -> int:
    """Where in the endless row of tasks something begins: far from where anything else does."""
    return derive_seed(*parts) % 10**9 * 1000


class Fresh(TaskSource):
    """Every step has tasks of its own. It remembers nothing: the seed and the step's number say which.

    Args:
        size: how many tasks there are, None: without end. Of finitely many a step draws without repeating one.
    """

    def __init__(self, arm: str, size: int | None, seed: int) -> None:
        self._arm, self._size, self._seed = arm, size, seed

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        if self._size is None:
            first = first_index("tasks", self._seed, step)
            return [Pick(self._arm, first + number) for number in range(count)]
        random = Random(derive_seed("tasks", self._seed, step))
        used = {pick.index for pick in without}
        left = [index for index in range(self._size) if index not in used]
        drawn = random.sample(left, min(count, len(left)))
        drawn += random.sample(sorted(used), count - len(drawn))
        return [Pick(self._arm, index) for index in drawn]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        pass

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


class Planned(NamedTuple):
    """One task to play, in an environment of its scenario."""

    pick: Pick
    scenario: Scenario
    task: Task


PlayedGroups = Sequence[Sequence[Episode]]
"""The episodes of each task, as they were played."""


class Matchup(NamedTuple):
    """Who plays against the learner in a game, and which seats are the learner's own."""

    opponent: str
    seats: tuple[str, ...]


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


class TaskPlan:
    """A task source with the scenarios of its arms."""

    def __init__(self, source: TaskSource, arms: Mapping[str, Arm]) -> None:
        self._source, self._arms = source, arms
        self._outcomes: Sequence[TaskOutcome] = ()
        made_of = arms if not self.is_stateless else {}
        self._made_of = {name: arm.scenario.fingerprint() for name, arm in made_of.items()}

    @property
    def scenarios(self) -> list[Scenario]:
        return [arm.scenario for arm in self._arms.values()]

    def draw(self, step: int, count: int, number: int = 0, drawn: frozenset[Pick] = frozenset()) -> list[Planned]:
        """Tasks of a step.

        Args:
            step: how many are done.
            number: of draws that the step made before. `drawn`: what they gave, which comes again only where nothing
                else is left.
        """
        return self.planned(self._source.draw(step + number * _ROUNDS, count, drawn))

    def planned(self, picks: Sequence[Pick]) -> list[Planned]:
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
                "and their files (questions, a reward function) were, or train a new run elsewhere"
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
