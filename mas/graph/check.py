"""Checks a team whole: one error lists every problem, each with the names that were possible."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import networkx as nx

from mas.core.errors import GraphError
from mas.core.naming import did_you_mean, local_name, scope_of, scoped
from mas.core.role import Role
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.check_members import join_problems, perhaps_meant, policy_problems, replica_problems, seat_problems
from mas.graph.check_messages import map_problems, meaning_problems
from mas.graph.check_tools import has_tools, tool_problems
from mas.graph.wiring import edge_text


def check_team(spec: TeamSpec, roles: Mapping[str, Role]) -> None:
    """Refuse a team that is not well formed.

    Args:
        roles: by role name.

    Raises:
        GraphError: lists all problems: names, structure, routes, message kinds.
    """
    # A role that is idle because a policy's name is mistyped is not what is wrong.
    meant = perhaps_meant(spec)
    rest = spec.model_copy(update={"roles": {name: role for name, role in spec.roles.items() if name not in meant}})
    problems = [
        *join_problems(rest),
        *_name_problems(rest),
        *_edge_problems(rest),
        *_structure_problems(rest),
        *map_problems(rest, roles),
        *meaning_problems(rest, roles),
        *policy_problems(spec, roles),
        *replica_problems(spec),
        *seat_problems(rest),
        *(tool_problems(rest) if has_tools(rest) else ()),
    ]
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise GraphError(f"team {spec.name!r} is not well formed:{listed}")


def _name_problems(spec: TeamSpec) -> list[str]:
    members = spec.members()
    problems = _form_problems((*members, *spec.teams), spec)
    for agent, role in members.items():
        if role not in spec.roles:
            problems.append(f"agent {agent!r} plays the unknown role {role!r}. {did_you_mean(role, spec.roles)}")
    for role in spec.roles:
        if role not in members.values() and role not in spec.stand_ins():
            problems.append(f"role {role!r} is played by no agent; add one under 'agents' or remove the role")
    for team, agent in spec.teams.items():
        if team in members:
            problems.append(f"{team!r} is the name of an agent and of a team; choose another for one of them")
        if agent not in members:
            problems.append(f"'output' of team {team!r} names the unknown agent {agent!r}. {_near(agent, members)}")
    return problems + _output_name_problems(spec, members)


def _output_name_problems(spec: TeamSpec, members: Mapping[str, str]) -> list[str]:
    named = [
        ("output", spec.output),
        *(("else_output", agent) for agent in spec.else_output),
        *([("leader", spec.leader)] if spec.leader is not None else []),
        *(("joint", agent) for agent in spec.joint),
    ]
    problems = [
        f"{key!r} names the unknown agent {agent!r}. {did_you_mean(agent, members)}"
        for key, agent in named
        if agent not in members
    ]
    if len(set(spec.outputs)) < len(spec.outputs):
        problems.append(f"'output' and 'else_output' name an agent twice: {', '.join(spec.outputs)}; name each once")
    return problems + (_joint_problems(spec) if spec.joint else [])


def _joint_problems(spec: TeamSpec) -> list[str]:
    problems = []
    if len(set(spec.joint)) < len(spec.joint):
        problems.append(f"'joint' names an agent twice: {', '.join(spec.joint)}; name each once")
    if spec.output not in spec.joint:
        problems.append(f"'joint' leaves out the output agent {spec.output!r}; add it, or name one of them as 'output'")
    if spec.else_output:
        problems.append("'joint' and 'else_output' exclude each other: members that did not speak are left out anyway")
    return problems


def _form_problems(names: Iterable[str], spec: TeamSpec) -> list[str]:
    problems = []
    for name in names:
        if local_name(name) in (START, DONE):
            problems.append(
                f"agent {name!r} has a reserved name; {START!r} and {DONE!r} are the ends of every team, choose another"
            )
        if "[" in name or "]" in name:
            problems.append(
                f"agent {name!r} has a bracket in its name, as instances of mapped agents have; take it out"
            )
        if scope_of(name) and scope_of(name) not in spec.teams:
            problems.append(f"agent {name!r} has a dot in its name, as members of a team within have; take it out")
    return problems


def _near(name: str, members: Iterable[str]) -> str:
    """The members of the same team that could be meant, as they are called there."""
    same = [local_name(member) for member in members if scope_of(member) == scope_of(name)]
    return did_you_mean(local_name(name), same)


def _edge_problems(spec: TeamSpec) -> list[str]:
    inner = spec.teams
    sources = (START, *(scoped(team, START) for team in inner), *spec.members(), *inner)
    targets = (*spec.members(), *inner, DONE, *(scoped(team, DONE) for team in inner))
    problems = []
    for edge in spec.edges:
        text, source, target = edge_text(edge), edge.source, edge.target
        if local_name(source) == DONE:
            problems.append(f"edge '{text}' leaves {source!r}, where the turn is over")
        elif source not in sources:
            problems.append(f"edge '{text}' leaves the unknown agent {source!r}. {_near(source, sources)}")
        if local_name(target) == START:
            problems.append(f"edge '{text}' leads to {target!r}, where nothing can arrive")
        elif target not in targets:
            problems.append(f"edge '{text}' leads to the unknown agent {target!r}. {_near(target, targets)}")
        if local_name(source) == START and local_name(target) == DONE:
            problems.append(f"edge '{text}' would end the turn before any agent has spoken")
        if scope_of(source) != scope_of(target):
            problems.append(f"edge '{text}' leads into or out of the middle of a team; name the team itself")
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
    """A team as plain graphs, teams within it as single nodes.

    Misspelt names are read as the nearest known one so that one typo is one problem.
    """

    scope: str

    nodes: tuple[str, ...]
    edges: tuple[EdgeSpec, ...]
    whole: "nx.DiGraph[str]"
    forward: "nx.DiGraph[str]"


def _shape(spec: TeamSpec, scope: str) -> _Shape:
    nodes = tuple(
        name
        for name in dict.fromkeys((*spec.members(), *spec.teams))
        if scope_of(name) == scope and local_name(name) not in (START, DONE)
    )
    start, done = scoped(scope, START), scoped(scope, DONE)
    known = (start, *nodes, done)
    inside = [edge for edge in spec.edges if scope_of(edge.source) == scope_of(edge.target) == scope]
    near = {
        name: name if name in known else next(iter(get_close_matches(name, known, n=1, cutoff=0.5)), None)
        for edge in inside
        for name in (edge.source, edge.target)
    }
    whole: nx.DiGraph[str] = nx.DiGraph()
    whole.add_nodes_from(known)
    forward = whole.copy()
    edges = []
    for edge in inside:
        source, target = near[edge.source], near[edge.target]
        if source is None or target is None or source == done or target == start:
            continue
        edges.append(edge.model_copy(update={"source": source, "target": target}))
        whole.add_edge(source, target)
        if edge.loop is None:
            forward.add_edge(source, target)
    return _Shape(scope, nodes, tuple(edges), whole, forward)


def _structure_problems(spec: TeamSpec) -> list[str]:
    if not spec.edges:
        return [f"the team has no edges; begin with '{START} -> AGENT' and end with 'AGENT -> {DONE}'"]
    return [problem for scope in ("", *spec.teams) for problem in _shape_problems(_shape(spec, scope))]


def _shape_problems(shape: _Shape) -> list[str]:
    start, done = scoped(shape.scope, START), scoped(shape.scope, DONE)
    problems = []
    if not shape.whole.out_degree(start):
        problems.append(f"no edge leaves {start!r}; add '{start} -> AGENT'. {did_you_mean('', shape.nodes)}")
    if not shape.whole.in_degree(done):
        problems.append(f"no edge leads to {done!r}; add 'AGENT -> {done}'. {did_you_mean('', shape.nodes)}")
    reached = nx.descendants(shape.whole, start)
    ending = nx.ancestors(shape.whole, done)
    if reached:
        problems += [f"agent {name!r} cannot be reached from {start!r}" for name in shape.nodes if name not in reached]
    if ending:
        problems += [f"from agent {name!r} no path leads to {done!r}" for name in shape.nodes if name not in ending]
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
        if local_name(edge.source) == START or not nx.has_path(shape.forward, edge.target, edge.source):
            problems.append(
                f"edge '{edge_text(edge)}' does not lead back: no path of edges without 'loop' goes from "
                f"{edge.target!r} to {edge.source!r}; remove 'loop {edge.loop}'"
            )
    return problems
