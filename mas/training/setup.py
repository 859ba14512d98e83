"""What a team is and what it plays, found, compiled and checked once: all that plays or trains is given this.

`mas.runs.resolve` makes it of a configuration; nothing in `mas.training` reads configurations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from mas.config.methods import CustomAlgorithm
from mas.config.options import AlgorithmOptions, EngineOptions, LearnerOptions, ModelOptions, TraceOptions, TrainOptions
from mas.config.servers import PeerOptions
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph.find import find_team
from mas.graph.plan import TeamPlan, compile_team
from mas.roles import build_roles
from mas.roles.builtin import taught
from mas.training.tasks.arms import Arm


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
    def is_served_elsewhere(self) -> bool:
        """Whether a server elsewhere has the model, so that no weights are loaded here."""
        return self.engine.name == "openai"

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
