"""What a team is and what it plays, found, compiled and checked once: all that plays or trains is given this.

`mas.runs.resolve` makes it of a configuration; nothing in `mas.training` reads configurations. `plan_tasks` makes the
task plan that a setup's options name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.custom_algorithm import CustomAlgorithm
from mas.config.options import EngineOptions, LearnerOptions, ModelOptions, TraceOptions, TrainOptions, WorkerOptions
from mas.config.servers import PeerOptions
from mas.core.errors import ConfigError
from mas.core.scenario import Finite, Scenario, TaskSource
from mas.core.team import TeamSpec
from mas.graph.load import find_team
from mas.graph.plan import TeamPlan, compile_team
from mas.roles import build_roles
from mas.roles.experiences import taught
from mas.training.tasks.plan import Arm, Fresh, TaskPlan, training_size
from mas.training.tasks.sources import Curriculum, Cursors, Epochs, LearningProgress, Mixture, Replay


def compiled(team: TeamSpec) -> TeamPlan:
    """The plan of a team, with its roles built."""
    return compile_team(team, build_roles(team))


def trainable_adapters(team: TeamSpec, policy: str) -> dict[str, str]:
    """Role -> adapter for every trainable role: one `shared` by all, or one per role (or as the role names it)."""
    return {
        name: "shared" if policy == "shared" else (role.adapter or name)
        for name, role in team.roles.items()
        if role.trainable
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A team with its scenario and all options, enough to play. Immutable.

    Attributes:
        plan: of the team that `algorithm.team` names.
        method: functions of a user's own algorithm; None: `algorithm` says all.
        peers: external models by name: those of roles, of an editor or of a judge.
    """

    scenario: Scenario
    plan: TeamPlan
    algorithm: AlgorithmOptions
    model: ModelOptions
    engine: EngineOptions
    peers: Mapping[str, PeerOptions]
    learner: LearnerOptions
    train: TrainOptions
    trace: TraceOptions
    cluster: WorkerOptions = field(default_factory=WorkerOptions)
    method: CustomAlgorithm | None = None

    @property
    def team(self) -> TeamSpec:
        """The team as its file says it."""
        return self.plan.spec

    @property
    def trained_adapters(self) -> dict[str, str]:
        """Role -> the adapter that it trains; empty where roles learn as text."""
        return {} if self.algorithm.is_training_free else trainable_adapters(self.team, self.algorithm.policy)

    @property
    def sampling_adapters(self) -> dict[str, str | None]:
        """Role -> the adapter that it samples with: the one that it trains, else the one that it names, else None, the
        bare base. Empty where roles learn as text: all of them sample with the bare base."""
        if self.algorithm.is_training_free:
            return {}
        return {name: role.adapter for name, role in self.team.roles.items()} | self.trained_adapters

    @property
    def role_keys(self) -> tuple[str, ...]:
        """The names of variables that hold the keys of servers whose models, and of agents who, play roles."""
        roles = self.team.roles.values()
        played = {role.peer for role in roles}
        keys = {one.key_env for name, one in self.peers.items() if name in played}
        keys |= {role.a2a.key_env for role in roles if role.a2a is not None}
        return tuple(sorted(key for key in keys if key is not None))

    @property
    def is_served_elsewhere(self) -> bool:
        """Whether a server elsewhere has the model, so that no weights are loaded here."""
        return self.engine.name in ("openai", "tinker")

    def with_team(self, name: str) -> Self:
        """The same with another team of the scenario.

        Raises:
            ConfigError, GraphError: as `find_team`.
        """
        algorithm = self.algorithm.model_copy(update={"team": name})
        return replace(self, plan=compiled(find_team(self.scenario, name)), algorithm=algorithm)

    def with_start(self, start: str | None) -> Self:
        """The same with adapters that begin as those of a run; None: as adapters that change nothing."""
        return replace(self, train=self.train.model_copy(update={"start": start}))

    def with_experiences(self, experiences: Mapping[str, Sequence[str]]) -> Self:
        """The same with what roles have learned as text. Roles that are left out keep what the team's file says."""
        return replace(self, plan=compiled(taught(self.team, experiences))) if experiences else self


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSetup(Setup):
    """A setup that was checked for training. `arms`: where training tasks come from, by name."""

    arms: Mapping[str, Arm]


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


def build_source(train: TrainOptions, sizes: Mapping[str, int | None]) -> TaskSource:
    """The source of `train.tasks`, with failed tasks played again where that is asked for.

    Args:
        sizes: arm -> how many training tasks it has, None where they never end.

    Raises:
        ConfigError: the tasks are not as many as the options want.
    """
    source = _source(train, sizes)
    return Replay(source, train.tasks.replay) if train.tasks.replay.share else source


def _source(train: TrainOptions, sizes: Mapping[str, int | None]) -> TaskSource:
    tasks, seed = train.tasks, train.seed
    if tasks.source in ("fresh", "epochs"):
        ((arm, size),) = sizes.items()
        if tasks.source == "fresh":
            _check_enough(size, train.tasks_per_step, "train.tasks_per_step")
            return Fresh(arm, size, seed)
        if tasks.count is None and size is None:
            raise ConfigError(
                "train.tasks.source=epochs plays all tasks of a scenario; those of this one never end: set "
                "train.tasks.count"
            )
        _check_enough(size, tasks.count or 0, "train.tasks.count")
        return Epochs(arm, tasks.count or size or 0, shuffle=tasks.shuffle, seed=seed, give_up=tasks.give_up)
    cursors = Cursors(sizes, seed)
    if tasks.source == "mixture":
        return Mixture(cursors, {name: arm.weight for name, arm in tasks.arms.items()})
    if tasks.source == "curriculum":
        return Curriculum(cursors, threshold=tasks.threshold, patience=tasks.patience)
    return LearningProgress(
        cursors, explore=tasks.explore, fast=tasks.fast, slow=tasks.slow, signal=tasks.signal, seed=seed
    )


def _check_enough(size: int | None, wanted: int, key: str) -> None:
    if size is not None and wanted > size:
        raise ConfigError(f"{key} is {wanted}, but there are {size} training tasks: set it to {size} at most")
