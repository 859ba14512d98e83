"""Checks that what an edge with `map` hands out is a list, and that one agent alone takes it."""

from collections.abc import Mapping

from mas.core.messages import Items
from mas.core.naming import local_name
from mas.core.role import Role
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.text import edge_text


def mapped_agents(spec: TeamSpec) -> frozenset[str]:
    """Agents that speak once per item of a list."""
    return frozenset(edge.target for edge in spec.edges if edge.map)


def map_problems(spec: TeamSpec, roles: Mapping[str, Role]) -> list[str]:
    """Problems of a team's edges with `map`.

    Args:
        roles: by role name; agents without one are left to other checks.
    """
    mapped = mapped_agents(spec)
    problems = [problem for edge in spec.edges if edge.map for problem in _edge_problems(spec, edge)]
    problems += [problem for edge in spec.edges if edge.map for problem in _list_problems(spec, edge, roles)]
    problems += [
        f"the output agent {agent!r} is mapped: it sends a list; add an agent that acts on it"
        for agent in dict.fromkeys((*spec.outputs, *spec.joint))
        if agent in mapped
    ]
    problems += [
        f"edge '{edge_text(edge)}' has a route, but {edge.source!r} is mapped: its list chooses none; "
        f"remove 'when {edge.when}'"
        for edge in spec.edges
        if edge.when is not None and spec.teams.get(edge.source, edge.source) in mapped
    ]
    return problems


def _edge_problems(spec: TeamSpec, edge: EdgeSpec) -> list[str]:
    text, problems = edge_text(edge), []
    if local_name(edge.source) == START:
        problems.append(f"edge '{text}' has 'map', but {edge.source!r} sends no list; remove it")
    if local_name(edge.target) == DONE or edge.target in spec.teams:
        problems.append(f"edge '{text}' has 'map', but {edge.target!r} is no agent; only an agent can be mapped")
    if edge.loop is not None:
        problems.append(f"edge '{text}' has 'map' and leads back; lead back to {edge.source!r}, who makes the list")
    others = [edge_text(one) for one in spec.edges if one.target == edge.target and one is not edge]
    if others:
        problems.append(f"edge '{text}' has 'map', but {edge.target!r} is reached by '{others[0]}', too; keep one")
    return problems


def _list_problems(spec: TeamSpec, edge: EdgeSpec, roles: Mapping[str, Role]) -> list[str]:
    agent = spec.teams.get(edge.source, edge.source)
    role = roles.get(spec.members().get(agent, ""))
    if role is None or role.emits == Items.kind or agent in mapped_agents(spec):
        return []
    return [
        f"edge '{edge_text(edge)}' has 'map', but role {role.name!r} emits {role.emits!r}, which is no list; "
        f"set its 'emits' to '{Items.kind}', or remove 'map'"
    ]
