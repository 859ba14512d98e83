"""The scenarios that tasks come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from mas.config.options import ScenarioOptions
from mas.config.sampling import TaskOptions
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.scenario import Scenario
from mas.core.tasks import Finite, SplitByContent
from mas.graph.find import find_team

Builder = Callable[[ScenarioOptions], Scenario]
"""Makes the scenario that options name."""

OWN = "own"
"""The one arm of a source that has no others: the run's scenario."""
_ATTEMPTS = 1000
_ELSEWHERE = 10**12


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
            "options could play what is evaluated; give it content_of and holds_out (mas.core.tasks.SplitByContent)"
        )
    return Arm(scenario, prefix=f"{name}:", judge=own)
