"""What a loop of a team touches when it begins anew, worked out once. Nodes are the numbers of `mas.graph.wiring`."""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from mas.core.team import TeamSpec

Ends = Sequence[tuple[int, int]]


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


def release_waves(loops: Sequence[Loop], ends: Ends, graph: "nx.DiGraph[int]") -> tuple[tuple[int, ...], ...]:
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


def most_visits(loops: Sequence[Loop], agents: int) -> tuple[int, ...]:
    """visits_v <= 1 + sum of I_l over the loops l around v; I_l = bound_l * (1 + sum of I_m over the m around l)."""
    begun: dict[int, int] = {}
    for number in sorted(range(len(loops)), key=lambda number: -len(loops[number].body)):
        around = sum(begun[outer] for outer in begun if number in loops[outer].nested)
        begun[number] = loops[number].bound * (1 + around)
    return tuple(1 + sum(begun[n] for n, loop in enumerate(loops) if node in loop.body) for node in range(agents))
