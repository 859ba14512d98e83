"""Where a team's nodes stand in a drawing: columns from left to right, rows so that arrows are short and straight.

Layers by longest path; an arrow over several columns passes through invisible points, which are placed like nodes;
rows by repeated barycentres (Sugiyama, Tagawa and Toda 1981). Loop edges do not count. No randomness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from mas.core.team import DONE, START, TeamSpec
from mas.graph.wiring import drawn_edges, gates

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """A placed team.

    Attributes:
        column: from 0, by node and invisible point; row: its height, larger is higher, neighbours at least 1 apart.
        paths: by (source, target) of each forward edge, the points that its arrow passes, both ends included.
    """

    column: Mapping[str, int]
    row: Mapping[str, float]
    paths: Mapping[tuple[str, str], tuple[str, ...]]


def place(spec: TeamSpec) -> GraphLayout:
    """Columns and rows of a checked team."""
    forward: nx.DiGraph[str] = nx.DiGraph()
    forward.add_nodes_from((START, *spec.members(), *gates(spec), DONE))
    forward.add_edges_from((edge.source, edge.target) for edge in drawn_edges(spec) if edge.loop is None)
    column = _columns(forward)
    paths = {}
    threads: nx.DiGraph[str] = nx.DiGraph()
    threads.add_nodes_from(forward)
    for source, target in forward.edges:
        between = [f"{source} {target} {at}" for at in range(column[source] + 1, column[target])]
        column |= {point: column[source] + 1 + step for step, point in enumerate(between)}
        paths[source, target] = (source, *between, target)
        nx.add_path(threads, paths[source, target])
    return GraphLayout(column, _rows(threads, column), paths)


def _columns(forward: "nx.DiGraph[str]") -> dict[str, int]:
    column: dict[str, int] = {}
    for node in nx.topological_sort(forward):
        column[node] = max((column[before] + 1 for before in forward.predecessors(node)), default=0)
    column[DONE] = max(place + 1 for node, place in column.items() if node != DONE)
    return column


def _rows(threads: "nx.DiGraph[str]", column: Mapping[str, int]) -> dict[str, float]:
    layers: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
    for node in nx.dfs_preorder_nodes(threads):
        layers[column[node]].append(node)
    row = {node: -float(rank) for layer in layers for rank, node in enumerate(layer)}
    for sweep in range(_SWEEPS):
        is_rightward = sweep % 2 == 0
        neighbours = threads.pred if is_rightward else threads.succ
        for layer in layers if is_rightward else reversed(layers):
            wanted = {node: _mean([row[other] for other in neighbours[node]], row[node]) for node in layer}
            layer.sort(key=lambda node: -wanted[node])
            row |= _apart(layer, wanted)
    return row


def _apart(layer: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
    """Rows near the wanted ones, in order from the top, at least 1 apart, moved together so that their mean is kept."""
    rows: list[float] = []
    for node in layer:
        rows.append(min(wanted[node], rows[-1] - 1) if rows else wanted[node])
    shift = sum(wanted[node] for node in layer) / len(layer) - sum(rows) / len(rows)
    return {node: row + shift for node, row in zip(layer, rows, strict=True)}


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
