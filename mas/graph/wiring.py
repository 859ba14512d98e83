"""A team's edges as integer tables: everything that a run would otherwise work out again at each step.

Nodes are numbers: agents in declared order, then for each team within the team its *entry* (`solve.start`) and its
*exit* (`solve.done`), and `DONE` last; `START` is -1. Entries and exits are gates: they speak by themselves as soon as
their join allows. An edge to `solve` leads to the entry, one from `solve` leaves the exit.
The *forward graph* is the team without its loop edges; in a checked team it has no cycle. What a loop touches when it
begins anew is worked out once. At the end: the seat that
each node plays for, and edges as the text that people write in a team's file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import networkx as nx

from mas.core.naming import local_name, scoped
from mas.core.role import USUAL_ITEMS
from mas.core.team import DONE, START, EdgeSpec, TeamSpec

Ends = Sequence[tuple[int, int]]
Wave = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop edge and what a new iteration touches.

    Attributes:
        edge: number of the loop edge; `head`: the node that it leads back to.
        bound: how often it may be taken within one iteration of the loops around it.
        body: nodes on the forward paths from `head` to the edge's source, both included.
        inside: edges with both ends in the body; `entries`, `exits`: forward edges into and out of it.
        nested: loops whose body is a strict part of this one's; their bounds start anew with each iteration.
    """

    edge: int
    bound: int
    head: int
    body: tuple[int, ...]
    inside: tuple[int, ...]
    entries: tuple[int, ...]
    exits: tuple[int, ...]
    nested: tuple[int, ...]


def find_loops(spec: TeamSpec, ends: Ends, closing: Sequence[int], graph: "nx.DiGraph[int]") -> tuple[Loop, ...]:
    """The loops of a checked team; `graph` is its forward graph, `closing` its loop edges in order."""
    bodies = []
    for index in closing:
        tail, head = ends[index]
        after: set[int] = nx.descendants(graph, head)
        before: set[int] = nx.ancestors(graph, tail)
        bodies.append((after | {head}) & (before | {tail}))
    loops = []
    for number, (index, body) in enumerate(zip(closing, bodies, strict=True)):
        forward = [(other, *ends[other]) for other in range(len(ends)) if other not in closing]
        loops.append(
            Loop(
                edge=index,
                bound=spec.edges[index].loop or 0,
                head=ends[index][1],
                body=tuple(sorted(body)),
                inside=tuple(i for i, (tail, head) in enumerate(ends) if tail in body and head in body),
                entries=tuple(i for i, (tail, head) in enumerate(ends) if tail not in body and head in body),
                exits=tuple(i for i, tail, head in forward if tail in body and head not in body),
                nested=tuple(other for other in range(len(closing)) if other != number and bodies[other] < body),
            )
        )
    return tuple(loops)


def release_waves(loops: Sequence[Loop], ends: Ends, graph: "nx.DiGraph[int]") -> tuple[Wave, ...]:
    """Exit edges in waves: an edge waits for every edge whose death could still start a loop that it leaves; those of
    one part wait for each other."""
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(index for loop in loops for index in loop.exits)
    tails = {loop.edge: ends[loop.edge][0] for loop in loops}
    waking = {edge: {tail} | nx.ancestors(graph, tail) for edge, tail in tails.items()}
    for loop in loops:
        for later in loop.exits:
            starting = [loop]  # and the loops that lead to it, of those that leave the edge as it is
            for one in starting:
                others = [other for other in loops if other not in starting and later not in other.inside]
                starting += [other for other in others if other.head in waking[one.edge]]
            heads = {node for one in starting for node in waking[one.edge]}
            order.add_edges_from((index, later) for index in list(order) if ends[index][1] in heads)
    waves: list[Wave] = []
    condensed = nx.condensation(order) if order else nx.DiGraph()
    for generation in nx.topological_generations(condensed):
        waves.append(tuple(tuple(sorted(condensed.nodes[part]["members"])) for part in generation))
    return tuple(waves)


def most_visits(loops: Sequence[Loop], agents: int) -> tuple[int, ...]:
    """visits_v <= 1 + sum of I_l over the loops l around v; I_l = bound_l * (1 + sum of I_m over the m around l)."""
    begun: dict[int, int] = {}
    for number in sorted(range(len(loops)), key=lambda number: -len(loops[number].body)):
        around = sum(begun[outer] for outer in begun if number in loops[outer].nested)
        begun[number] = loops[number].bound * (1 + around)
    return tuple(1 + sum(begun[n] for n, loop in enumerate(loops) if node in loop.body) for node in range(agents))


ALL: Final = 0
"""Join: until every branch is decided. A number above it is one of live branches."""
QUORUM: Final = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """One declared edge.

    Attributes:
        index: position among the team's edges.
        tail, head: numbers of source and target.
        loop: number of the loop that it closes, None for a forward edge.
        leaves: whether it leads out of some loop's body (loop edges never do).
        map: whether it hands out a list.
    """

    index: int
    source: str
    target: str
    tail: int
    head: int
    when: str | None
    loop: int | None
    leaves: bool
    map: bool


@dataclass(frozen=True, slots=True)
class Wiring:
    """All tables of one team.

    Attributes:
        agents: how many there are; nodes from this number on are gates.
        names: of all nodes as `joins` names them; spoken: the names that they are heard under, those within their team.
        starting: edges that leave `START`.
        forward_in: forward edges into each node, `DONE` last; `loop_in`: loop edges into each node.
        out: edges out of each node but `DONE`, in declared order.
        needs: `ALL`, `QUORUM`, or how many live branches each node waits for, `DONE` last.
        skips: nodes that do not fire where their number is not met.
        lasts: by exit, the agent whose last output it sends.
        items: the most instances of each mapped node, 0 for one that is not; empty where nothing is mapped.
        releases: edges out of loop bodies in the order in which dead tokens on them may be believed, inner loops first.
        max_visits: how often each node but `DONE` can fire in one team turn at most.
    """

    agents: int
    names: tuple[str, ...]
    spoken: tuple[str, ...]
    edges: tuple[Edge, ...]
    loops: tuple[Loop, ...]
    starting: tuple[int, ...]
    forward_in: tuple[tuple[int, ...], ...]
    loop_in: tuple[tuple[int, ...], ...]
    out: tuple[tuple[Edge, ...], ...]
    needs: tuple[int, ...]
    skips: frozenset[int]
    lasts: Mapping[int, int]
    items: tuple[int, ...]
    releases: tuple[Wave, ...]
    max_visits: tuple[int, ...]


def gates(spec: TeamSpec) -> tuple[str, ...]:
    """Names of the entries and exits of the teams within a team."""
    return tuple(scoped(team, end) for team in spec.teams for end in (START, DONE))


def ends_of(spec: TeamSpec, edge: EdgeSpec) -> tuple[str, str]:
    """The nodes that an edge leaves and reaches: a team's exit and entry where it names a team."""
    source = scoped(edge.source, DONE) if edge.source in spec.teams else edge.source
    return source, scoped(edge.target, START) if edge.target in spec.teams else edge.target


def drawn_edges(spec: TeamSpec) -> tuple[EdgeSpec, ...]:
    """The team's edges between the nodes that they really leave and reach."""
    ends = (ends_of(spec, edge) for edge in spec.edges)
    return tuple(
        edge.model_copy(update={"source": source, "target": target})
        for edge, (source, target) in zip(spec.edges, ends, strict=True)
    )


def most_items(spec: TeamSpec, source: str) -> int:
    """How long a list can be that an agent or a team of a checked team sends."""
    agent = spec.teams.get(source, source)
    mapping = next((edge for edge in spec.edges if edge.map and edge.target == agent), None)
    if mapping is not None:
        return most_items(spec, mapping.source)
    return spec.roles[spec.members()[agent]].max_items or USUAL_ITEMS


def wire(spec: TeamSpec) -> Wiring:
    """Tables of a checked team."""
    agents = tuple(spec.members())
    nodes = (*agents, *gates(spec), DONE)
    number = {START: -1} | {name: index for index, name in enumerate(nodes)}
    ends = [(number[source], number[target]) for source, target in (ends_of(spec, edge) for edge in spec.edges)]
    closing = [index for index, edge in enumerate(spec.edges) if edge.loop is not None]
    forward = [index for index in range(len(ends)) if index not in closing]
    graph: nx.DiGraph[int] = nx.DiGraph(ends[index] for index in forward)
    graph.add_nodes_from(range(-1, len(nodes)))
    loops = find_loops(spec, ends, closing, graph)
    edges = _edges(spec, ends, closing, loops)
    joins = [spec.join(name.removesuffix(f".{START}")) for name in nodes]
    return Wiring(
        agents=len(agents),
        names=tuple(name.removesuffix(f".{START}") for name in nodes),
        spoken=tuple(local_name(name.removesuffix(f".{DONE}")) for name in nodes),
        edges=edges,
        loops=loops,
        starting=tuple(edge.index for edge in edges if edge.tail < 0),
        forward_in=_into(ends, forward, len(nodes)),
        loop_in=_into(ends, closing, len(nodes)),
        out=tuple(tuple(edge for edge in edges if edge.tail == node) for node in range(len(nodes) - 1)),
        needs=tuple(_need(join.need) for join in joins),
        skips=frozenset(node for node, join in enumerate(joins) if join.unmet == "skip"),
        lasts={number[scoped(team, DONE)]: number[agent] for team, agent in spec.teams.items()},
        items=_items(spec, edges, len(agents)),
        releases=release_waves(loops, ends, graph),
        max_visits=most_visits(loops, len(nodes) - 1),
    )


def _edges(spec: TeamSpec, ends: Ends, closing: Sequence[int], loops: Sequence[Loop]) -> tuple[Edge, ...]:
    leaving = {index for loop in loops for index in loop.exits}
    return tuple(
        Edge(
            index=index,
            source=edge.source,
            target=edge.target,
            tail=ends[index][0],
            head=ends[index][1],
            when=edge.when,
            loop=closing.index(index) if index in closing else None,
            leaves=index in leaving,
            map=edge.map,
        )
        for index, edge in enumerate(spec.edges)
    )


def _into(ends: Ends, chosen: Iterable[int], nodes: int) -> tuple[tuple[int, ...], ...]:
    table: list[list[int]] = [[] for _ in range(nodes)]
    for index in chosen:
        table[ends[index][1]].append(index)
    return tuple(tuple(row) for row in table)


def _need(need: int | str) -> int:
    return need if isinstance(need, int) else {"all": ALL, "any": 1, "quorum": QUORUM}[need]


def _items(spec: TeamSpec, edges: Sequence[Edge], agents: int) -> tuple[int, ...]:
    bounds = {edge.head: most_items(spec, edge.source) for edge in edges if edge.map}
    return tuple(bounds.get(node, 0) for node in range(agents)) if bounds else ()


def seat_of(spec: TeamSpec) -> dict[str, str]:
    """Node of a checked team -> the seat that it plays for; agents, and the ends of teams within."""
    if not spec.seats:
        return dict.fromkeys(spec.members(), spec.seat)
    return {node: seat for part, seats in seat_parts(spec) for node in part for seat in seats}


def seat_parts(spec: TeamSpec) -> list[tuple[list[str], list[str]]]:
    """The team without its ends falls apart into these: nodes, and the seats that they speak for."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(spec.members())
    for edge in drawn_edges(spec):
        ends = [end for end in (edge.source, edge.target) if end not in (START, DONE)]
        graph.add_nodes_from(ends)
        graph.add_edges_from([(ends[0], ends[-1])] if len(ends) == 2 else [])
    outputs: Mapping[str, str] = {agent: seat for seat, agent in spec.seats.items()}
    parts = [sorted(part) for part in nx.connected_components(graph)]
    return [(part, [outputs[node] for node in part if node in outputs]) for part in parts]


def edge_text(edge: EdgeSpec) -> str:
    """`a -> b when ROUTE loop N map`, as it is written in a team's file."""
    when = f" when {edge.when}" if edge.when else ""
    loop = f" loop {edge.loop}" if edge.loop else ""
    return f"{edge.source} -> {edge.target}{when}{loop}{' map' if edge.map else ''}"


def edge_label(edge: EdgeSpec) -> str:
    """What stands beside an arrow: the route, the loop's bound, that each item goes alone; empty where it has none."""
    parts = [edge.when or "", f"up to {edge.loop}×" if edge.loop else "", "each" if edge.map else ""]
    return ", ".join(part for part in parts if part)


def join_label(spec: TeamSpec, node: str) -> str:
    """How a node waits, as it stands in its box; empty for one that waits for all without a limit."""
    join = spec.join(node.removesuffix(f".{START}"))
    parts = [f"{join.need}" if join.need != "all" else "", f"{join.timeout_s:g} s" if join.timeout_s else ""]
    waits = ", ".join(part for part in parts if part)
    return f"waits: {waits}" if waits else ""
