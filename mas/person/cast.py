"""Who plays which role: people, partners that need no model, or the configured engine."""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from mas.core.environment import Environment, Script
from mas.core.errors import ConfigError
from mas.core.messages import Verdict, read_joint
from mas.core.naming import did_you_mean, listed
from mas.core.role import Role
from mas.core.scenario import Scenario, ScenarioWrapper
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.roles import build_roles
from mas.roles.build import random_answer

_ASKED: Mapping[str, Any] = {"voice": "human", "trainable": False, "adapter": None, "peer": None, "a2a": None}
"""What a role is like that a desk is asked for."""


class Recast(ScenarioWrapper):
    """A scenario with one team, called `team`, instead of its own ones."""

    def __init__(self, scenario: Scenario, team: TeamSpec) -> None:
        super().__init__(scenario)
        self._team = team

    @property
    def teams(self) -> Mapping[str, TeamSpec]:
        return {"team": self._team}


def with_people(team: TeamSpec, wanted: Sequence[str]) -> tuple[TeamSpec, tuple[str, ...]]:
    """The team, and the roles in it that people play: those wanted, and those that it leaves to people itself.

    A member that is wanted gets a role of its own, `ROLE (MEMBER)`, where others share its role. The only role of a
    team need not be named.

    Raises:
        ConfigError: neither a role that somebody plays nor a member, or none is wanted of several.
    """
    members = team.members()
    played = list(dict.fromkeys(members.values()))
    for name in wanted:
        if name not in played and name not in members:
            known = did_you_mean(name, {*played, *members})
            raise ConfigError(f"--as {name}: team {team.name!r} has no such role and no such member. {known}")
    for name in wanted:
        if name not in played and members[name] not in wanted:
            team = _apart(team, name)
    members = team.members()
    asked = [name if name in played else members[name] for name in wanted]
    left = [name for name in played if name in members.values() and team.roles[name].voice == "human"]
    people = tuple(dict.fromkeys([*asked, *left])) or tuple(played if len(played) == 1 else ())
    if not people:
        raise ConfigError(f"say who of team {team.name!r} you are: {_choices(team)}; --as may be repeated")
    return team, people


def _apart(team: TeamSpec, member: str) -> TeamSpec:
    """The same team with a role of its own for one of the members that share one."""
    members = team.members()
    role = members[member]
    if list(members.values()).count(role) == 1:
        return team
    own = f"{role} ({member})"
    return team.model_copy(update={"roles": {**team.roles, own: team.roles[role]}, "agents": members | {member: own}})


def _choices(team: TeamSpec) -> str:
    """What may be said with `--as`: the roles, and the members that share one."""
    shared: dict[str, list[str]] = {}
    for member, role in team.members().items():
        shared.setdefault(role, []).append(member)
    one = ", ".join(f"--as {role}" for role in shared)
    several = [f"{', '.join(members)} (all are {role})" for role, members in shared.items() if len(members) > 1]
    return one + "".join(f", or one of {members}" for members in several)


def recast(team: TeamSpec, asked: Collection[str]) -> TeamSpec:
    """The team with a desk asked for these roles."""
    roles = {name: role.model_copy(update=_ASKED) if name in asked else role for name, role in team.roles.items()}
    return team.model_copy(update={"roles": roles})


class Partners:
    """Players of roles that need no model.

    `random`: every role says one of its choices. `expert`: whoever decides the team's action, alone or with others,
    does what the scenario's expert would do, which knows what the scenario's README says of it; who gives verdicts
    accepts; the rest says one of its choices.

    Args:
        roles: those that they play.
        environment: the world that is played in, reset; looked at whenever somebody speaks.
        expert: None: everybody draws.

    Raises:
        ConfigError: a role has no choices to draw from.
    """

    def __init__(
        self, team: TeamSpec, roles: Collection[str], environment: Environment, seed: int, expert: Script | None
    ) -> None:
        self.roles = frozenset(roles)
        self._seat = team.seat
        members = team.members()
        self._acting = frozenset(members[agent] for agent in team.joint or (team.output,))
        self._joint = team.joint
        self._environment = environment
        self._expert = expert
        self._random = Random(derive_seed("partners", seed))
        built = build_roles(team)
        silent = [name for name in roles if self._draw(built[name]) is None and not self._is_told(built[name])]
        if silent:
            raise ConfigError(
                f"nobody can play {listed(silent)} without a model: no choices are declared to draw from. Play them "
                "yourself, with --as, or leave --others out"
            )

    def answer(self, agent: str, role: Role) -> str:
        """What an agent that plays the role says now."""
        if self._expert is not None and role.name in self._acting:
            action = (self._expert(self._environment, self._random) or {})[self._seat]
            return self._part_of(action, agent)
        if self._is_told(role):
            return role.spec.accept_text
        return self._draw(role) or ""

    def _part_of(self, action: str, agent: str) -> str:
        """What one agent does of the team's action.

        Raises:
            ConfigError: members act together, and the expert does not say what each of them does.
        """
        if not self._joint:
            return action
        said = read_joint(action, self._joint)
        if said is None:
            raise ConfigError(
                f"the expert does {action!r} for all of {listed(self._joint)} at once and does not say who does what; "
                "--others model is possible"
            )
        return said.get(agent, "")

    def _is_told(self, role: Role) -> bool:
        return self._expert is not None and (role.name in self._acting or role.emits == Verdict.kind)

    def _draw(self, role: Role) -> str | None:
        return random_answer(role, self._random, self._environment.legal(self._seat) or ())
