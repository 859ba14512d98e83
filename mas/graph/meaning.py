"""Checks that edges say what their roles can mean: routes, message kinds, the team's output, what templates read."""

from collections.abc import Mapping

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.role import Role
from mas.core.team import DONE, START, TeamSpec
from mas.graph.policies import told
from mas.graph.template import parse_template
from mas.graph.text import edge_text


def meaning_problems(spec: TeamSpec, roles: Mapping[str, Role]) -> list[str]:
    """Problems of a team's edges and templates, seen with its roles.

    Args:
        roles: by role name; agents without one are left to other checks, except where none was built.
    """
    missing = [f"role {name!r} was not built; pass build_roles(spec)" for name in spec.roles if name not in roles]
    cast = {agent: roles[role] for agent, role in spec.members().items() if role in roles}
    return [
        *missing,
        *_route_problems(spec, cast),
        *_untaken_problems(spec, cast),
        *_kind_problems(spec, cast),
        *_output_problems(spec, cast),
        *_template_problems(spec),
    ]


def _route_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> list[str]:
    problems = []
    for edge in spec.edges:
        if edge.when is None:
            continue
        text = edge_text(edge)
        if edge.source == START:
            problems.append(f"edge '{text}' has a route, but {START!r} chooses nothing; remove 'when {edge.when}'")
        elif edge.source in cast and not cast[edge.source].routes:
            problems.append(
                f"edge '{text}' has a route, but role {cast[edge.source].name!r} of type "
                f"{cast[edge.source].spec.type!r} has no routes; remove 'when {edge.when}' or use a role that chooses"
            )
        elif edge.source in cast and edge.when not in cast[edge.source].routes:
            routes = cast[edge.source].routes
            problems.append(
                f"edge '{text}' has the route {edge.when!r}, which role {cast[edge.source].name!r} does not have. "
                f"{did_you_mean(edge.when, routes)}"
            )
    return problems


def _untaken_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> list[str]:
    problems = []
    for agent, role in cast.items():
        taken = {edge.when for edge in spec.edges if edge.source == agent}
        if not taken or None in taken:
            continue
        problems += [
            f"route {route!r} of agent {agent!r} is taken by no edge; add '{agent} -> AGENT when {route}'"
            for route in role.routes
            if route not in taken
        ]
    return problems


def _kind_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> list[str]:
    return [
        f"edge '{edge_text(edge)}' brings {cast[edge.source].emits!r}, which role {cast[edge.target].name!r} does not "
        f"accept. {did_you_mean(cast[edge.source].emits, cast[edge.target].accepts)}"
        for edge in spec.edges
        if edge.source in cast and edge.target in cast and cast[edge.source].emits not in cast[edge.target].accepts
    ]


def _output_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> list[str]:
    role = cast.get(spec.output)
    if role is None or role.emits == "action" or role.spec.emits is not None:
        return []
    acting = [agent for agent, other in cast.items() if other.emits == "action"]
    return [
        f"the output agent {spec.output!r} emits {role.emits!r}, not 'action'; "
        f"choose one that does ({acting or 'there is none'}), or set 'emits' of role {role.name!r} if it is meant"
    ]


def _template_problems(spec: TeamSpec) -> list[str]:
    members = spec.members()
    problems = []
    for name, role in spec.roles.items():
        if role.template is None:
            continue
        try:
            senders = dict.fromkeys(parse_template(role.template).senders)
        except ConfigError as error:
            problems.append(f"role {name!r}: {error}")
            continue
        players = {agent for agent, played in members.items() if played == name}
        heard = {edge.source for edge in spec.edges if edge.target in players and edge.source not in (START, DONE)}
        heard |= told(spec, {name, *players})
        problems += [
            f"the template of role {name!r} reads {{from.{sender}}}, but {sender!r} sends it nothing. "
            f"{did_you_mean(sender, heard)}"
            for sender in senders
            if sender not in heard
        ]
    return problems
