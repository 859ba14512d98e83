"""Reads a team from YAML or a mapping, and finds the team that a configuration names.

All that is wrong with a file becomes one error: file, key, value, what was possible.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mas.config.plain_values import PlainLoader
from mas.core.environment import EnvironmentSpec, ToolWorld
from mas.core.errors import ConfigError, GraphError
from mas.core.naming import did_you_mean, local_name, shown
from mas.core.options import model_at
from mas.core.role import ENVIRONMENT, RoleSpec
from mas.core.scenario import Scenario
from mas.core.team import MAX_DEPTH, TeamSpec
from mas.graph.wiring import seat_of
from mas.protocols.written import MADE, protocol_team

M = TypeVar("M", bound=BaseModel)


def load_team(source: Path | str | Mapping[str, object]) -> TeamSpec:
    """A team from a YAML file or an equal mapping. It is not checked as a graph yet: `compile_team` does that.

    A role may be a string: the path of a YAML file with that role, relative to the team's file (for a mapping, to the
    working directory). So may the team of a member, `agents: {solve: {team: solver.yaml}}`.

    Raises:
        GraphError: an unreadable file, an unknown key, a value that does not fit, a team that stands within itself; all
            such problems of one file in one message.
    """
    if isinstance(source, Mapping):
        return _team(dict(source), "team", Path(), ("team",))
    path = Path(source)
    return _team(_read(path), str(path), path.parent, (str(path.resolve()),))


def _team(content: dict[str, Any], where: str, folder: Path, within: tuple[str, ...]) -> TeamSpec:
    """The team of a mapping; `within`: the teams around it, itself last."""
    if len(within) > MAX_DEPTH:
        raise GraphError(f"{where} stands {len(within)} teams deep; at most {MAX_DEPTH} may stand in each other")
    roles, agents = content.get("roles"), content.get("agents")
    if isinstance(roles, Mapping):
        content = content | {"roles": {name: _role(role, folder) for name, role in roles.items()}}
    if isinstance(agents, Mapping):
        members = {name: _member(name, value, where, folder, within) for name, value in agents.items()}
        content = content | {"agents": members}
    if "protocol" in content:
        content = _with_protocol(content, where)
    return _checked(TeamSpec, content, f"{where} is not a team")


def _checked(kind: type[M], content: object, problem: str) -> M:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = "".join(f"\n  - {_problem(detail, kind)}" for detail in error.errors())
        raise GraphError(f"{problem}:{problems}") from None


def _with_protocol(content: dict[str, Any], where: str) -> dict[str, Any]:
    """The keys of a team with those that its protocol gives."""
    if both := [key for key in MADE if key in content]:
        raise GraphError(
            f"{where} is not a team: it has a protocol, which says {', '.join(both)}: leave out one of both"
        )
    kept = {key: value for key, value in content.items() if key != "protocol"}
    # The protocol is not read yet, so edges are left out: first, all problems of the other keys are reported together.
    written = _checked(TeamSpec, {"roles": {}, **kept, "edges": (), "output": ""}, f"{where} is not a team")
    policies = written.policies.values()
    stand_ins = {name for one in policies for name in (one.fallback, one.compensation) if name is not None}
    try:
        team = protocol_team(written.name, content["protocol"], written.roles, stand_ins)
    except ConfigError as error:
        raise GraphError(f"{where} is not a team: {error}") from error
    return kept | {key: value for key in ("roles", *MADE) if (value := getattr(team, key))}


def _member(name: object, value: object, where: str, folder: Path, within: tuple[str, ...]) -> object:
    """The value itself, or for a team within the team that team, checked so that an error names its place."""
    inner = value.get("team") if isinstance(value, Mapping) and set(value) == {"team"} else None
    if isinstance(inner, Mapping):
        place = f"{where}, team of agent {name!r},"
        return {"team": _team(dict(inner), place, folder, (*within, place))}
    if not isinstance(inner, str):
        return value
    path = folder / inner
    resolved = str(path.resolve())
    if resolved in within:
        raise GraphError(
            f"{where}: the team of agent {name!r}, {path}, stands within itself; a team cannot hold itself"
        )
    return {"team": _team(_read(path), str(path), path.parent, (*within, resolved))}


def _role(value: object, folder: Path) -> object:
    """The value itself, or for a path the role in that file, checked so that an error names the file."""
    if not isinstance(value, str):
        return {} if value is None else value
    return read_file(RoleSpec, folder / value, "a role")


def read_file(kind: type[M], path: Path, what: str) -> M:
    """What a YAML file of the user's holds, such as a role.

    Raises:
        GraphError: as `load_team`. `what`: that the file is none of, if a key or a value does not fit.
    """
    return _checked(kind, _read(path), f"{path} is not {what}")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=PlainLoader)
    except OSError as error:
        near = [other.name for other in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        hint = f" {did_you_mean(path.name, near)}" if near else ""
        raise GraphError(f"{path} cannot be read: {error.strerror}.{hint}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise GraphError(f"{path} is not YAML: {error}") from error
    except RecursionError:
        raise GraphError(f"{path} cannot be read: it is nested too deeply") from None
    if not isinstance(content, dict):
        raise GraphError(f"{path} holds {shown(content)}, but a mapping of keys to values was expected")
    return content


def _problem(detail: ErrorDetails, root: type[BaseModel] = TeamSpec) -> str:
    """One validation error as a sentence: key, value, what was possible."""
    place = detail["loc"]
    key = ".".join(str(part) for part in place) or "the whole"
    if detail["type"] == "extra_forbidden":
        options = [
            *model_at(place[:-1], root).model_fields,
            *(["protocol"] if root is TeamSpec and len(place) == 1 else []),
        ]
        return f"unknown key {key!r} (value {shown(detail['input'])}). {did_you_mean(str(place[-1]), options)}"
    if detail["type"] == "missing":
        return f"the key {key!r} is missing"
    if detail["type"] == "value_error":
        return f"{key!r}: {detail['msg'].removeprefix('Value error, ')}"
    hint = (
        "; put it in quotes if a text is meant"
        if detail["type"] == "string_type" and detail["input"] is not None
        else ""
    )
    return f"{key!r} is {shown(detail['input'])}, but: {detail['msg'][:1].lower()}{detail['msg'][1:]}{hint}"


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
    for role, spec in team.roles.items():
        for tool in spec.environment_tools:
            _check_tool(tool, f"{name}: role {role!r}", scenario)


def _check_tool(tool: str, who: str, scenario: Scenario) -> None:
    environment = scenario.environment()
    if not isinstance(environment, ToolWorld):
        raise ConfigError(
            f"{who} has the tool {ENVIRONMENT}.{tool}, and the environment of {scenario.name!r} has no tools that a "
            "role could have rules for (mas.core.environment.ToolWorld): leave it out"
        )
    if tool not in environment.tool_names:
        hint = did_you_mean(tool, environment.tool_names)
        raise ConfigError(f"{who} has the tool {ENVIRONMENT}.{tool}; the environment has no such tool. {hint}")


def _check_sees_its_own(team: TeamSpec, name: str, world: EnvironmentSpec, views: Mapping[str, str]) -> None:
    """A view that is named like a seat is what that seat knows, and no other one's agents see it."""
    own = seat_of(team)
    for agent, view in views.items():
        if view in world.seats and view != own[agent]:
            raise ConfigError(
                f"{name}: agent {agent!r} plays for seat {own[agent]!r} and would see the view {view!r}, what another "
                f"seat knows; set 'view' of its role to one of its own seat (of two agents, give each a role)"
            )
