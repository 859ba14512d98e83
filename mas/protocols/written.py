"""Protocols in a team's file: `protocol: NAME` in place of edges, and the roles of the file in its places."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.protocols.teams import (
    critique_and_refine,
    debate,
    fan_out,
    pipeline,
    plan_execute,
    plan_execute_verify,
    self_play,
    solo,
    vote,
)

PROTOCOLS: Mapping[str, Callable[..., TeamSpec]] = {
    protocol.__name__: protocol
    for protocol in (
        critique_and_refine, debate, fan_out, pipeline, plan_execute, plan_execute_verify, self_play, solo, vote,
    )
}  # fmt: skip
"""Those that a file can name. `nested` is not among them: its members are teams."""
MADE = ("agents", "edges", "joins", "output", "seats")
"""Keys of a team that its protocol gives."""
_LISTS = ("stages", "workers", "debaters", "players")
"""Parameters that take all roles which are not named otherwise."""
_AGENTS = {"role": "solo"}
"""The agent whose role a parameter is, where it is not called like it."""


def team_of(name: str, protocol: object, roles: Mapping[str, RoleSpec]) -> TeamSpec:
    """The team of a protocol.

    Args:
        name: of the team.
        protocol: a name, or a mapping with `name` and the protocol's options, such as `{name: vote, voters: 5}`.
        roles: by the names of the protocol's parameters; one that is left out is the built-in one. Where it takes any
            number of them (`pipeline`, `fan_out`, `debate`, `self_play`), in their order.

    Raises:
        ConfigError: there is no such protocol, option or role, or they make no team.
    """
    options: dict[str, Any] = {"name": protocol} if isinstance(protocol, str) else _mapping(protocol)
    chosen = options.pop("name", None)
    make = PROTOCOLS.get(chosen) if isinstance(chosen, str) else None
    if make is None:
        raise ConfigError(f"there is no protocol {chosen!r}. {did_you_mean(str(chosen), PROTOCOLS)}")
    parameters = [one for one in signature(make).parameters.values() if one.name != "name"]
    known = [one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    for key, value in options.items():
        if key not in known:
            raise ConfigError(f"protocol {chosen} has no option {key!r}. {did_you_mean(key, known)}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"protocol {chosen}: {key} is {value!r}, but a whole number was expected")
    left, given = dict(roles), dict[str, Any]()
    places = {_AGENTS.get(one.name, one.name): one.name for one in parameters if one.name not in known}
    for agent, parameter in places.items():
        if agent not in _LISTS and agent in left:
            given[parameter] = left.pop(agent)
    rest = next((parameter for parameter in places if parameter in _LISTS), None)
    if rest is not None:
        given[rest] = left
    elif left:
        raise ConfigError(
            f"protocol {chosen} has no role {next(iter(left))!r}. {did_you_mean(next(iter(left)), places)}"
        )
    return make(**given, **options, name=name)


def _mapping(protocol: object) -> dict[str, Any]:
    if not isinstance(protocol, Mapping):
        raise ConfigError(f"protocol is {protocol!r}, but a name, or a mapping with `name` and options, was expected")
    return dict(protocol)
