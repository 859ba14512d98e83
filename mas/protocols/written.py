"""Protocols in a team's file: `protocol: NAME` in place of edges, and the roles of the file in its places.

A pipeline is written as its order, `protocol: planner -> executor`: tools that write YAML may sort a mapping.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.protocols import teams

_NAMED = (
    "critique_and_refine", "debate", "fan_out", "plan_execute", "plan_execute_verify", "self_play", "solo", "vote",
)  # fmt: skip
PROTOCOLS: Mapping[str, Callable[..., TeamSpec]] = {name: getattr(teams, name) for name in _NAMED}
"""Those that a file can name, beside a pipeline. `nested` is not among them: its members are teams."""
_THEN = "->"
"""Stands between the roles of a pipeline."""
MADE = ("agents", "edges", "joins", "output", "seats")
"""Keys of a team that its protocol gives."""
_LISTS = frozenset({"workers", "debaters", "players"})
"""Parameters that take all roles which are not named otherwise."""
_AGENTS = {"role": "solo"}
"""The agent whose role a parameter is, where it is not called like it."""


def protocol_team(
    name: str, protocol: object, roles: Mapping[str, RoleSpec], stand_ins: Collection[str] = ()
) -> TeamSpec:
    """The team of a protocol.

    Args:
        name: of the team.
        protocol: a name; a mapping with `name` and the protocol's options, such as `{name: vote, voters: 5}`; or the
            roles of a pipeline in their order, `planner -> executor`.
        roles: by the names of the protocol's parameters; one that is left out is the built-in one. `fan_out`, `debate`
            and `self_play` take any number of them.
        stand_ins: fallbacks and compensations that the team's policies name: roles that may have no place.

    Raises:
        ConfigError: there is no such protocol, option or role, or they make no team.
    """
    if isinstance(protocol, str) and _THEN in protocol:
        return _pipeline(name, [stage.strip() for stage in protocol.split(_THEN)], roles, stand_ins)
    options: dict[Any, Any] = {"name": protocol} if isinstance(protocol, str) else _mapping(protocol)
    chosen = options.pop("name", None)
    make = PROTOCOLS.get(chosen) if isinstance(chosen, str) else None
    if make is None:
        if chosen == "pipeline":
            order = f" {_THEN} ".join(roles if len(roles) > 1 else ("planner", "executor"))
            raise ConfigError(f"a pipeline is written as its order, such as 'protocol: {order}'")
        raise ConfigError(f"there is no protocol {chosen!r}. {did_you_mean(str(chosen), PROTOCOLS)}")
    parameters = [one for one in signature(make).parameters.values() if one.name != "name"]
    known = [one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    for key, value in options.items():
        if key not in known:
            raise ConfigError(f"protocol {chosen} has no option {key!r}. {did_you_mean(str(key), known)}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"protocol {chosen}: {key} is {value!r}, but a whole number was expected")
    places = {_AGENTS.get(one.name, one.name): one.name for one in parameters if one.name not in {*known, *_LISTS}}
    given: dict[str, Any] = {parameter: roles[agent] for agent, parameter in places.items() if agent in roles}
    others = {agent: role for agent, role in roles.items() if agent not in places}
    several = next((one for one in parameters if one.name in _LISTS), None)
    if several is None:
        aside = {role: spec for role, spec in others.items() if role in stand_ins}
        for role in others.keys() - aside.keys():
            raise ConfigError(f"protocol {chosen} has no role {role!r}. {did_you_mean(role, places)}")
        team = make(**given, **options, name=name)
        return team.model_copy(update={"roles": {**team.roles, **aside}}) if aside else team
    _check_members(str(chosen), others, places, stand_ins)
    if others or several.default is Parameter.empty:
        given[several.name] = others
    return make(**given, **options, name=name)


def _pipeline(name: str, stages: Sequence[str], roles: Mapping[str, RoleSpec], stand_ins: Collection[str]) -> TeamSpec:
    """Agents one after the other; a further role may be a stand-in."""
    for role in {*stages, *roles}:
        times = stages.count(role)
        if times != 1 and (times or role not in stand_ins):
            written = f" {_THEN} ".join(stages)
            raise ConfigError(f"protocol {written!r} has role {role!r} {times} times: each role stands in it once")
    if missing := [stage for stage in stages if stage not in roles]:
        raise ConfigError(f"protocol has {missing[0]!r}, which is no role. {did_you_mean(missing[0], roles)}")
    team = teams.pipeline({stage: roles[stage] for stage in stages}, name=name)
    return team.model_copy(update={"roles": dict(roles)})


def _check_members(
    protocol: str, members: Mapping[str, RoleSpec], places: Mapping[str, str], stand_ins: Collection[str]
) -> None:
    """Refuse a role that would become one more member, and was probably meant as something else."""
    for role in members:
        if near := get_close_matches(role, places, n=1, cutoff=0.8):
            raise ConfigError(f"protocol {protocol} would take role {role!r} for one more member: is it {near[0]!r}?")
        if role in stand_ins:
            raise ConfigError(
                f"protocol {protocol} would take role {role!r} for one more member, and a policy names it as a "
                "stand-in: write the edges of this team out"
            )


def _mapping(protocol: object) -> dict[Any, Any]:
    if not isinstance(protocol, Mapping):
        raise ConfigError(f"protocol is {protocol!r}, but a name, or a mapping with `name` and options, was expected")
    return dict(protocol)
