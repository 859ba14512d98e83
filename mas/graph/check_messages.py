"""Checks that edges say what their roles can mean: routes, lists that `map` hands out, message kinds, the team's
output, what templates read.
"""

from collections.abc import Iterator, Mapping

from mas.core.errors import ConfigError
from mas.core.messages import Items, Note
from mas.core.naming import did_you_mean, local_name, scope_of, scoped
from mas.core.role import Role, parse_template
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.check_members import extra_sources
from mas.graph.wiring import edge_text


def mapped_agents(spec: TeamSpec) -> frozenset[str]:
    """Agents that speak once per item of a list."""
    return frozenset(edge.target for edge in spec.edges if edge.map)


def map_problems(spec: TeamSpec, roles: Mapping[str, Role]) -> Iterator[str]:
    """Problems of a team's edges with `map`.

    Args:
        roles: by role name; agents without one are left to other checks.
    """
    mapped = mapped_agents(spec)
    mapping = [edge for edge in spec.edges if edge.map]
    for edge in mapping:
        yield from _edge_problems(spec, edge)
    for edge in mapping:
        yield from _list_problems(spec, edge, roles)
    for agent in dict.fromkeys((*spec.outputs, *spec.joint)):
        if agent in mapped:
            yield f"the output agent {agent!r} is mapped: it sends a list; add an agent that acts on it"
    for edge in spec.edges:
        if edge.when is not None and spec.teams.get(edge.source, edge.source) in mapped:
            yield (
                f"edge '{edge_text(edge)}' has a route, but {edge.source!r} is mapped: its list chooses none; "
                f"remove 'when {edge.when}'"
            )


def _edge_problems(spec: TeamSpec, edge: EdgeSpec) -> Iterator[str]:
    text = edge_text(edge)
    if local_name(edge.source) == START:
        yield f"edge '{text}' has 'map', but {edge.source!r} sends no list; remove it"
    if local_name(edge.target) == DONE or edge.target in spec.teams:
        yield f"edge '{text}' has 'map', but {edge.target!r} is no agent; only an agent can be mapped"
    if edge.loop is not None:
        yield f"edge '{text}' has 'map' and leads back; lead back to {edge.source!r}, who makes the list"
    others = [edge_text(one) for one in spec.edges if one.target == edge.target and one is not edge]
    if others:
        yield f"edge '{text}' has 'map', but {edge.target!r} is reached by '{others[0]}', too; keep one"


def _list_problems(spec: TeamSpec, edge: EdgeSpec, roles: Mapping[str, Role]) -> Iterator[str]:
    agent = spec.teams.get(edge.source, edge.source)
    role = roles.get(spec.members().get(agent, ""))
    if role is not None and role.emits != Items.kind and agent not in mapped_agents(spec):
        yield (
            f"edge '{edge_text(edge)}' has 'map', but role {role.name!r} emits {role.emits!r}, which is no list; "
            f"set its 'emits' to '{Items.kind}', or remove 'map'"
        )


def meaning_problems(spec: TeamSpec, roles: Mapping[str, Role]) -> list[str]:
    """Problems of a team's edges and templates, seen with its roles.

    Args:
        roles: by role name; agents without one are left to other checks, except where none was built.
    """
    missing = [f"role {name!r} was not built; pass build_roles(spec)" for name in spec.roles if name not in roles]
    cast = {agent: roles[role] for agent, role in spec.members().items() if role in roles}
    heads = {team: cast[agent] for team, agent in spec.teams.items() if agent in cast}
    return [
        *missing,
        *_route_problems(spec, cast | heads),
        *_untaken_problems(spec, cast | heads),
        *_kind_problems(spec, cast | heads),
        *_output_problems(spec, cast),
        *_template_problems(spec),
        *_namesake_problems(spec),
    ]


def _route_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> Iterator[str]:
    for edge in spec.edges:
        if edge.when is None:
            continue
        text = edge_text(edge)
        if local_name(edge.source) == START:
            yield f"edge '{text}' has a route, but {START!r} chooses nothing; remove 'when {edge.when}'"
        elif edge.source in cast and not cast[edge.source].routes:
            yield (
                f"edge '{text}' has a route, but role {cast[edge.source].name!r} of type "
                f"{cast[edge.source].spec.type!r} has no routes; remove 'when {edge.when}' or use a role that chooses"
            )
        elif edge.source in cast and edge.when not in cast[edge.source].routes:
            routes = cast[edge.source].routes
            yield (
                f"edge '{text}' has the route {edge.when!r}, which role {cast[edge.source].name!r} does not have. "
                f"{did_you_mean(edge.when, routes)}"
            )


def _untaken_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> Iterator[str]:
    for agent, role in cast.items():
        taken = {edge.when for edge in spec.edges if edge.source == agent}
        if not taken or None in taken:
            continue
        for route in role.routes:
            if route not in taken:
                yield f"route {route!r} of agent {agent!r} is taken by no edge; add '{agent} -> AGENT when {route}'"


def _kind_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> Iterator[str]:
    for edge in spec.edges:
        if edge.source not in cast:
            continue
        kind = _brought(spec, edge, cast)
        for agent in _hearers(spec, edge.target):
            if agent in cast and kind not in cast[agent].accepts:
                yield (
                    f"edge '{edge_text(edge)}' brings {kind!r}, which role {cast[agent].name!r} does not "
                    f"accept. {did_you_mean(kind, cast[agent].accepts)}"
                )


def _brought(spec: TeamSpec, edge: EdgeSpec, cast: Mapping[str, Role]) -> str:
    """The kind of message that an edge brings: an item is a note, and what a mapped agent says is a list."""
    if edge.map:
        return Note.kind
    is_mapped = spec.teams.get(edge.source, edge.source) in mapped_agents(spec)
    return Items.kind if is_mapped else cast[edge.source].emits


def _hearers(spec: TeamSpec, target: str) -> list[str]:
    """Who reads what an edge brings: its target or, for a team, the agents that begin it."""
    if target not in spec.teams:
        return [target]
    inside = [edge for edge in spec.edges if scope_of(edge.target) == target]
    begin = [edge.target for edge in inside if edge.source == scoped(target, START)]
    return [agent for one in begin for agent in _hearers(spec, one)]


def senders_of(spec: TeamSpec, agent: str) -> list[str]:
    """Whom an agent hears: where its edges come from and, for one that begins a team, who reaches the team."""
    senders: list[str] = []
    for edge in spec.edges:
        if edge.target != agent or edge.source in (START, DONE):
            continue
        outer = scope_of(edge.source)
        senders += senders_of(spec, outer) if outer and local_name(edge.source) == START else [edge.source]
    return senders


def _output_problems(spec: TeamSpec, cast: Mapping[str, Role]) -> list[str]:
    acting = [agent for agent, other in cast.items() if other.emits == "action"]
    speaking = [(agent, cast[agent]) for agent in spec.outputs if agent in cast]
    return [
        f"the output agent {agent!r} emits {role.emits!r}, not 'action'; "
        f"choose one that does ({acting or 'there is none'}), or set 'emits' of role {role.name!r} if it is meant"
        for agent, role in speaking
        if role.emits != "action" and role.spec.emits is None
    ]


def _template_problems(spec: TeamSpec) -> Iterator[str]:
    members = spec.members()
    for name, role in spec.roles.items():
        try:
            read = {field: dict.fromkeys(parse_template(text).senders) for field, text in role.templates.items()}
        except ConfigError as error:
            yield f"role {name!r}: {error}"
            continue
        players = {agent for agent, played in members.items() if played == name}
        heard = {local_name(sender) for agent in players for sender in senders_of(spec, agent)}
        heard |= extra_sources(spec, {name, *players})
        for field, senders in read.items():
            for sender in [sender for sender in senders if sender not in heard]:
                yield (
                    f"the {field} of role {name!r} reads {{from.{sender}}}, but {sender!r} sends it nothing. "
                    f"{did_you_mean(sender, heard)}"
                )


def _namesake_problems(spec: TeamSpec) -> Iterator[str]:
    for agent in spec.members():
        heard: dict[str, str] = {}
        for sender in senders_of(spec, agent):
            other = heard.setdefault(local_name(sender), sender)
            if other != sender:
                yield f"agent {agent!r} would hear {other!r} and {sender!r} under one name; rename one"
