"""Checks a team whole: one error lists every problem, each with the names that were possible."""

from collections.abc import Iterable, Iterator, Mapping
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


def _name_problems(spec: TeamSpec) -> Iterator[str]:
    members = spec.members()
    yield from _form_problems((*members, *spec.teams), spec)
    for agent, role in members.items():
        if role not in spec.roles:
            yield f"agent {agent!r} plays the unknown role {role!r}. {did_you_mean(role, spec.roles)}"
    for role in spec.roles:
        if role not in members.values() and role not in spec.stand_ins():
            yield f"role {role!r} is played by no agent; add one under 'agents' or remove the role"
    for team, agent in spec.teams.items():
        if team in members:
            yield f"{team!r} is the name of an agent and of a team; choose another for one of them"
        if agent not in members:
            yield f"'output' of team {team!r} names the unknown agent {agent!r}. {_near(agent, members)}"
    yield from _output_name_problems(spec, members)


def _output_name_problems(spec: TeamSpec, members: Mapping[str, str]) -> Iterator[str]:
    named = [
        ("output", spec.output),
        *(("else_output", agent) for agent in spec.else_output),
        *([("leader", spec.leader)] if spec.leader is not None else []),
        *(("joint", agent) for agent in spec.joint),
    ]
    for key, agent in named:
        if agent not in members:
            yield f"{key!r} names the unknown agent {agent!r}. {did_you_mean(agent, members)}"
    if len(set(spec.outputs)) < len(spec.outputs):
        yield f"'output' and 'else_output' name an agent twice: {', '.join(spec.outputs)}; name each once"
    if spec.joint:
        yield from _joint_problems(spec)


def _joint_problems(spec: TeamSpec) -> Iterator[str]:
    if len(set(spec.joint)) < len(spec.joint):
        yield f"'joint' names an agent twice: {', '.join(spec.joint)}; name each once"
    if spec.output not in spec.joint:
        yield f"'joint' leaves out the output agent {spec.output!r}; add it, or name one of them as 'output'"
    if spec.else_output:
        yield "'joint' and 'else_output' exclude each other: members that did not speak are left out anyway"


def _form_problems(names: Iterable[str], spec: TeamSpec) -> Iterator[str]:
    for name in names:
        if local_name(name) in (START, DONE):
            yield (
                f"agent {name!r} has a reserved name; {START!r} and {DONE!r} are the ends of every team, choose another"
            )
        if "[" in name or "]" in name:
            yield f"agent {name!r} has a bracket in its name, as instances of mapped agents have; take it out"
        if scope_of(name) and scope_of(name) not in spec.teams:
            yield f"agent {name!r} has a dot in its name, as members of a team within have; take it out"


def _near(name: str, members: Iterable[str]) -> str:
    """The members of the same team that could be meant, as they are called there."""
    same = [local_name(member) for member in members if scope_of(member) == scope_of(name)]
    return did_you_mean(local_name(name), same)


def _edge_problems(spec: TeamSpec) -> Iterator[str]:
    inner = spec.teams
    sources = (START, *(scoped(team, START) for team in inner), *spec.members(), *inner)
    targets = (*spec.members(), *inner, DONE, *(scoped(team, DONE) for team in inner))
    for edge in spec.edges:
        text, source, target = edge_text(edge), edge.source, edge.target
        if local_name(source) == DONE:
            yield f"edge '{text}' leaves {source!r}, where the turn is over"
        elif source not in sources:
            yield f"edge '{text}' leaves the unknown agent {source!r}. {_near(source, sources)}"
        if local_name(target) == START:
            yield f"edge '{text}' leads to {target!r}, where nothing can arrive"
        elif target not in targets:
            yield f"edge '{text}' leads to the unknown agent {target!r}. {_near(target, targets)}"
        if local_name(source) == START and local_name(target) == DONE:
            yield f"edge '{text}' would end the turn before any agent has spoken"
        if scope_of(source) != scope_of(target):
            yield f"edge '{text}' leads into or out of the middle of a team; name the team itself"
    yield from _duplicate_problems(spec)


def _duplicate_problems(spec: TeamSpec) -> Iterator[str]:
    seen: list[EdgeSpec] = []
    for edge in spec.edges:
        for other in seen:
            same_ends = (other.source, other.target) == (edge.source, edge.target)
            if same_ends and (other.when == edge.when or None in (other.when, edge.when)):
                verb = "repeats" if other.when == edge.when else "overlaps"
                yield f"edge '{edge_text(edge)}' {verb} '{edge_text(other)}'; keep one of them"
                break
        seen.append(edge)


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


def _structure_problems(spec: TeamSpec) -> Iterator[str]:
    if not spec.edges:
        yield f"the team has no edges; begin with '{START} -> AGENT' and end with 'AGENT -> {DONE}'"
        return
    for scope in ("", *spec.teams):
        yield from _shape_problems(_shape(spec, scope))


def _shape_problems(shape: _Shape) -> Iterator[str]:
    start, done = scoped(shape.scope, START), scoped(shape.scope, DONE)
    if not shape.whole.out_degree(start):
        yield f"no edge leaves {start!r}; add '{start} -> AGENT'. {did_you_mean('', shape.nodes)}"
    if not shape.whole.in_degree(done):
        yield f"no edge leads to {done!r}; add 'AGENT -> {done}'. {did_you_mean('', shape.nodes)}"
    reached = nx.descendants(shape.whole, start)
    ending = nx.ancestors(shape.whole, done)
    if reached:
        yield from (f"agent {name!r} cannot be reached from {start!r}" for name in shape.nodes if name not in reached)
    if ending:
        yield from (f"from agent {name!r} no path leads to {done!r}" for name in shape.nodes if name not in ending)
    yield from sorted(_cycle_problems(shape))
    yield from _loop_problems(shape)


def _cycle_problems(shape: _Shape) -> Iterator[str]:
    for part in nx.strongly_connected_components(shape.forward):
        if len(part) > 1 or any(shape.forward.has_edge(name, name) for name in part):
            cycle = [source for source, _ in nx.find_cycle(shape.forward.subgraph(part), min(part))]
            path = " -> ".join([*cycle, cycle[0]])
            yield f"the cycle {path} has no bound; write 'loop N' on the edge that leads back"


def _loop_problems(shape: _Shape) -> Iterator[str]:
    for edge in shape.edges:
        if edge.loop is None or edge.source == edge.target:
            continue
        if local_name(edge.source) == START or not nx.has_path(shape.forward, edge.target, edge.source):
            yield (
                f"edge '{edge_text(edge)}' does not lead back: no path of edges without 'loop' goes from "
                f"{edge.target!r} to {edge.source!r}; remove 'loop {edge.loop}'"
            )
