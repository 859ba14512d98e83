"""A team's edges as integer tables: everything about loops that a run would otherwise work out again at each step.

Nodes are agent numbers in declared order; `DONE` is the number after the last agent, `START` is -1.
The *forward graph* is the team without its loop edges; in a checked team it has no cycle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

from mas.core.team import START, TeamSpec


@dataclass(frozen=True, slots=True)
class Edge:
    """One declared edge.

    Attributes:
        index: position among the team's edges.
        tail, head: numbers of source and target.
        loop: number of the loop that it closes, None for a forward edge.
        leaves: whether it leads out of some loop's body (loop edges never do).
    """

    index: int
    source: str
    target: str
    tail: int
    head: int
    when: str | None
    loop: int | None
    leaves: bool


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


@dataclass(frozen=True, slots=True)
class Wiring:
    """All tables of one team.

    Attributes:
        starting: edges that leave `START`.
        forward_in: forward edges into each node, `DONE` last; `loop_in`: loop edges into each node.
        out: edges out of each agent, in declared order.
        any_join: whether the node fires at its first live token, `DONE` last.
        releases: edges out of loop bodies in the order in which dead tokens on them may be believed, inner loops first.
        max_visits: how often each agent can fire in one team turn at most.
    """

    edges: tuple[Edge, ...]
    loops: tuple[Loop, ...]
    starting: tuple[int, ...]
    forward_in: tuple[tuple[int, ...], ...]
    loop_in: tuple[tuple[int, ...], ...]
    out: tuple[tuple[Edge, ...], ...]
    any_join: tuple[bool, ...]
    releases: tuple[tuple[int, ...], ...]
    max_visits: tuple[int, ...]


Ends = Sequence[tuple[int, int]]


def wire(spec: TeamSpec, nodes: Sequence[str]) -> Wiring:
    """Tables of a checked team; `nodes` are its agents in declared order, followed by `DONE`."""
    number = {START: -1} | {name: index for index, name in enumerate(nodes)}
    ends = [(number[edge.source], number[edge.target]) for edge in spec.edges]
    closing = [index for index, edge in enumerate(spec.edges) if edge.loop is not None]
    forward = [index for index in range(len(ends)) if index not in closing]
    graph: nx.DiGraph[int] = nx.DiGraph(ends[index] for index in forward)
    graph.add_nodes_from(range(-1, len(nodes)))
    loops = _loops(spec, ends, closing, graph)
    leaving = {index for loop in loops for index in loop.exits}
    edges = tuple(
        Edge(
            index=index,
            source=edge.source,
            target=edge.target,
            tail=ends[index][0],
            head=ends[index][1],
            when=edge.when,
            loop=closing.index(index) if index in closing else None,
            leaves=index in leaving,
        )
        for index, edge in enumerate(spec.edges)
    )
    return Wiring(
        edges=edges,
        loops=loops,
        starting=tuple(edge.index for edge in edges if edge.tail < 0),
        forward_in=_into(ends, forward, len(nodes)),
        loop_in=_into(ends, closing, len(nodes)),
        out=tuple(tuple(edge for edge in edges if edge.tail == node) for node in range(len(nodes) - 1)),
        any_join=tuple(spec.joins.get(name, "all") == "any" for name in nodes),
        releases=_releases(loops, ends, graph),
        max_visits=_max_visits(loops, len(nodes) - 1),
    )


def _into(ends: Ends, chosen: Iterable[int], nodes: int) -> tuple[tuple[int, ...], ...]:
    table: list[list[int]] = [[] for _ in range(nodes)]
    for index in chosen:
        table[ends[index][1]].append(index)
    return tuple(tuple(row) for row in table)


def _loops(spec: TeamSpec, ends: Ends, closing: Sequence[int], graph: "nx.DiGraph[int]") -> tuple[Loop, ...]:
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


def _releases(loops: Sequence[Loop], ends: Ends, graph: "nx.DiGraph[int]") -> tuple[tuple[int, ...], ...]:
    """Exit edges in waves: an edge waits for every edge whose death could still start a loop that it leaves."""
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(index for loop in loops for index in loop.exits)
    for loop in loops:
        tail = ends[loop.edge][0]
        waking = {tail} | nx.ancestors(graph, tail)
        first = [index for index in order if ends[index][1] in waking]
        order.add_edges_from((index, later) for index in first for later in loop.exits)
    waves: list[tuple[int, ...]] = []
    condensed = nx.condensation(order) if order else nx.DiGraph()
    for generation in nx.topological_generations(condensed):
        waves.append(tuple(sorted(edge for part in generation for edge in condensed.nodes[part]["members"])))
    return tuple(waves)


def _max_visits(loops: Sequence[Loop], agents: int) -> tuple[int, ...]:
    """visits_v <= 1 + sum of I_l over the loops l around v; I_l = bound_l * (1 + sum of I_m over the m around l)."""
    begun: dict[int, int] = {}
    for number in sorted(range(len(loops)), key=lambda number: -len(loops[number].body)):
        around = sum(begun[outer] for outer in begun if number in loops[outer].nested)
        begun[number] = loops[number].bound * (1 + around)
    return tuple(1 + sum(begun[n] for n, loop in enumerate(loops) if node in loop.body) for node in range(agents))
