"""The team that a configuration names: one of the scenario's own, or anybody's YAML file."""

from collections.abc import Mapping
from pathlib import Path

from mas.core.environment import EnvironmentSpec
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean, local_name
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.graph.seats import seat_of

_SUFFIXES = (".yaml", ".yml")


def find_team(scenario: Scenario, name: str) -> TeamSpec:
    """A team of a scenario by name, or the team in a YAML file, checked against what the scenario can show.

    Raises:
        ConfigError: the scenario has no such team, or none of the views or the seat that the file's team needs, or an
            agent of one of the file's seats would see what another seat sees.
        GraphError: the file cannot be read as a team.
    """
    if name.endswith(_SUFFIXES):
        team = load_team(Path(name))
        _check_fits(team, name, scenario)
        return team
    if name not in scenario.teams:
        raise ConfigError(
            f"scenario {scenario.name!r} has no team {name!r}. {did_you_mean(name, scenario.teams)} "
            "A team of your own is named by its file, such as algorithm.team=team.yaml."
        )
    return scenario.teams[name]


def _check_fits(team: TeamSpec, name: str, scenario: Scenario) -> None:
    world = scenario.environment().spec
    views = {
        agent: (team.roles[role].view if role in team.roles else None) or local_name(agent)
        for agent, role in team.members().items()
    }
    for agent, view in views.items():
        if view not in world.views:
            raise ConfigError(
                f"{name}: agent {agent!r} would see the view {view!r}, which {scenario.name!r} does not have; "
                f"set 'view' of its role. {did_you_mean(view, world.views)}"
            )
    for seat in team.plays:
        if seat not in world.seats:
            raise ConfigError(f"{name}: {scenario.name!r} has no seat {seat!r}. {did_you_mean(seat, world.seats)}")
    if team.seats:
        _check_sees_its_own(team, name, world, views)


def _check_sees_its_own(team: TeamSpec, name: str, world: EnvironmentSpec, views: Mapping[str, str]) -> None:
    """A view that is named like a seat is what that seat knows, and no other one's agents see it."""
    own = seat_of(team)
    for agent, view in views.items():
        if view in world.seats and view != own[agent]:
            raise ConfigError(
                f"{name}: agent {agent!r} plays for seat {own[agent]!r} and would see the view {view!r}, what another "
                f"seat knows; set 'view' of its role to one of its own seat (of two agents, give each a role)"
            )
