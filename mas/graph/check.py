"""Checks a team whole: one error lists every problem, each with the names that were possible."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import networkx as nx

from mas.core.errors import GraphError
from mas.core.naming import did_you_mean
from mas.core.role import Role
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.meaning import meaning_problems
from mas.graph.policies import policy_problems
from mas.graph.text import edge_text


def check_team(spec: TeamSpec, roles: Mapping[str, Role]) -> None:
    """Refuse a team that is not well formed.

    Args:
        roles: by role name.

    Raises:
        GraphError: lists all problems: names, structure, routes, message kinds.
    """
    problems = [
        *_name_problems(spec),
        *_edge_problems(spec),
        *_structure_problems(spec),
        *meaning_problems(spec, roles),
        *policy_problems(spec, roles),
    ]
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise GraphError(f"team {spec.name!r} is not well formed:{listed}")


def _name_problems(spec: TeamSpec) -> list[str]:
    members = spec.members()
    problems = [
        f"agent {name!r} has a reserved name; {START!r} and {DONE!r} are the ends of every team, choose another"
        for name in members
        if name in (START, DONE)
    ]
    for agent, role in members.items():
        if role not in spec.roles:
            problems.append(f"agent {agent!r} plays the unknown role {role!r}. {did_you_mean(role, spec.roles)}")
    for role in spec.roles:
        if role not in members.values() and role not in spec.stand_ins():
            problems.append(f"role {role!r} is played by no agent; add one under 'agents' or remove the role")
    for agent in spec.joins:
        if agent not in members and agent != DONE:
            problems.append(f"'joins' names the unknown agent {agent!r}. {did_you_mean(agent, (*members, DONE))}")
    if spec.output not in members:
        problems.append(f"'output' names the unknown agent {spec.output!r}. {did_you_mean(spec.output, members)}")
    return problems


def _edge_problems(spec: TeamSpec) -> list[str]:
    sources, targets = (START, *spec.members()), (*spec.members(), DONE)
    problems = []
    for edge in spec.edges:
        text = edge_text(edge)
        if edge.source == DONE:
            problems.append(f"edge '{text}' leaves {DONE!r}, where the turn is over")
        elif edge.source not in sources:
            problems.append(
                f"edge '{text}' leaves the unknown agent {edge.source!r}. {did_you_mean(edge.source, sources)}"
            )
        if edge.target == START:
            problems.append(f"edge '{text}' leads to {START!r}, where nothing can arrive")
        elif edge.target not in targets:
            problems.append(
                f"edge '{text}' leads to the unknown agent {edge.target!r}. {did_you_mean(edge.target, targets)}"
            )
        if edge.source == START and edge.target == DONE:
            problems.append(f"edge '{text}' would end the turn before any agent has spoken")
    return problems + _duplicate_problems(spec)


def _duplicate_problems(spec: TeamSpec) -> list[str]:
    problems = []
    seen: list[EdgeSpec] = []
    for edge in spec.edges:
        for other in seen:
            same_ends = (other.source, other.target) == (edge.source, edge.target)
            if same_ends and (other.when == edge.when or None in (other.when, edge.when)):
                verb = "repeats" if other.when == edge.when else "overlaps"
                problems.append(f"edge '{edge_text(edge)}' {verb} '{edge_text(other)}'; keep one of them")
                break
        seen.append(edge)
    return problems


@dataclass(frozen=True, slots=True)
class _Shape:
    """The team as plain graphs, misspelt names read as the nearest known one so that one typo is one problem."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeSpec, ...]
    whole: "nx.DiGraph[str]"
    forward: "nx.DiGraph[str]"


def _shape(spec: TeamSpec) -> _Shape:
    nodes = tuple(name for name in spec.members() if name not in (START, DONE))
    known = (START, *nodes, DONE)
    near = {
        name: name if name in known else next(iter(get_close_matches(name, known, n=1, cutoff=0.5)), None)
        for edge in spec.edges
        for name in (edge.source, edge.target)
    }
    whole: nx.DiGraph[str] = nx.DiGraph()
    whole.add_nodes_from(known)
    forward = whole.copy()
    edges = []
    for edge in spec.edges:
        source, target = near[edge.source], near[edge.target]
        if source is None or target is None or source == DONE or target == START:
            continue
        edges.append(edge.model_copy(update={"source": source, "target": target}))
        whole.add_edge(source, target)
        if edge.loop is None:
            forward.add_edge(source, target)
    return _Shape(nodes, tuple(edges), whole, forward)


def _structure_problems(spec: TeamSpec) -> list[str]:
    if not spec.edges:
        return [f"the team has no edges; begin with '{START} -> AGENT' and end with 'AGENT -> {DONE}'"]
    shape = _shape(spec)
    problems = []
    if not shape.whole.out_degree(START):
        problems.append(f"no edge leaves {START!r}; add '{START} -> AGENT'. {did_you_mean('', shape.nodes)}")
    if not shape.whole.in_degree(DONE):
        problems.append(f"no edge leads to {DONE!r}; add 'AGENT -> {DONE}'. {did_you_mean('', shape.nodes)}")
    reached = nx.descendants(shape.whole, START)
    ending = nx.ancestors(shape.whole, DONE)
    if reached:
        problems += [f"agent {name!r} cannot be reached from {START!r}" for name in shape.nodes if name not in reached]
    if ending:
        problems += [f"from agent {name!r} no path leads to {DONE!r}" for name in shape.nodes if name not in ending]
    return problems + _cycle_problems(shape) + _loop_problems(shape)


def _cycle_problems(shape: _Shape) -> list[str]:
    problems = []
    for part in nx.strongly_connected_components(shape.forward):
        if len(part) > 1 or any(shape.forward.has_edge(name, name) for name in part):
            cycle = [source for source, _ in nx.find_cycle(shape.forward.subgraph(part), min(part))]
            path = " -> ".join([*cycle, cycle[0]])
            problems.append(f"the cycle {path} has no bound; write 'loop N' on the edge that leads back")
    return sorted(problems)


def _loop_problems(shape: _Shape) -> list[str]:
    problems = []
    for edge in shape.edges:
        if edge.loop is None or edge.source == edge.target:
            continue
        if edge.source == START or not nx.has_path(shape.forward, edge.target, edge.source):
            problems.append(
                f"edge '{edge_text(edge)}' does not lead back: no path of edges without 'loop' goes from "
                f"{edge.target!r} to {edge.source!r}; remove 'loop {edge.loop}'"
            )
    return problems
