"""The graphs: what every framework is asked to build, in words that belong to none of them."""

from dataclasses import dataclass
from typing import Literal

Does = Literal["speak", "speak late", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    Attributes:
        does: speaks at once, after `LATE_S`, or raises.
        says: its output; for a node with routed edges, the route that it takes.
        gives, takes: types of its output and its input.
        joins: it waits for all nodes before it and then runs once.
        isolated: if it fails, the others shall go on, by whatever the framework offers for that.
    """

    name: str
    does: Does = "speak"
    says: str | int = "ok"
    gives: type = str
    takes: type = str
    joins: bool = False
    isolated: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """From one node to another, `when` a route is taken; None: always."""

    source: str
    target: str
    when: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A graph that begins at its first node and ends where no edges leave.

    Attributes:
        routes: node -> the routes that it can take.
        asks: the question that it puts to a framework.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    asks: str
    routes: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """Where it begins."""
        return self.nodes[0].name

    def into(self, name: str) -> tuple[Edge, ...]:
        """Edges that lead to a node."""
        return tuple(edge for edge in self.edges if edge.target == name)

    def out_of(self, name: str) -> tuple[Edge, ...]:
        """Edges that leave a node."""
        return tuple(edge for edge in self.edges if edge.source == name)

    def is_router(self, name: str) -> bool:
        """Whether the node chooses among its edges."""
        return any(edge.when is not None for edge in self.out_of(name))

    @property
    def ends(self) -> tuple[str, ...]:
        """Nodes that no edge leaves."""
        return tuple(node.name for node in self.nodes if not self.out_of(node.name))


LATE_S = 0.5
"""Seconds that a slow node takes."""


def _edges(*words: str) -> tuple[Edge, ...]:
    """`a b` or `a b route`."""
    return tuple(Edge(*word.split()) for word in words)


PROBES: dict[str, Shape] = {
    "unreachable": Shape(
        asks="a node that no edge leads to from the start",
        nodes=(Node(name="root"), Node(name="b"), Node(name="lost"), Node(name="tail")),
        edges=_edges("root b", "lost tail"),
    ),
    "endless": Shape(
        asks="a cycle without an exit and without a bound",
        nodes=(Node(name="root"), Node(name="a"), Node(name="b")),
        edges=_edges("root a", "a b", "b a"),
    ),
    "untaken": Shape(
        asks="a join of all, one of whose branches is not taken",
        nodes=(
            Node(name="root"),
            Node(name="choice", says="left"),
            Node(name="other"),
            Node(name="b"),
            Node(name="c"),
            Node(name="d", joins=True),
        ),
        edges=_edges("root choice", "root other", "choice b left", "choice c right", "b d", "c d", "other d"),
        routes=("left", "right"),
    ),
    "depths": Shape(
        asks="a join of two paths, one longer than the other",
        nodes=(Node(name="root"), Node(name="a"), Node(name="b"), Node(name="c"), Node(name="d", joins=True)),
        edges=_edges("root a", "root b", "b c", "a d", "c d"),
    ),
    "slow": Shape(
        asks="a fast path beside a slow node: does its second node wait?",
        nodes=(Node(name="root"), Node(name="fast"), Node(name="slow", does="speak late"), Node(name="after")),
        edges=_edges("root fast", "root slow", "fast after"),
    ),
    "route": Shape(
        asks="a route with a typo: an edge for `rihgt` at a node that says `right`",
        nodes=(Node(name="root"), Node(name="choice", says="right"), Node(name="b"), Node(name="c")),
        edges=_edges("root choice", "choice b left", "choice c rihgt"),
        routes=("left", "right"),
    ),
    "type": Shape(
        asks="an edge from a node that gives a number to one that takes a text",
        nodes=(Node(name="root"), Node(name="giver", says=7, gives=int), Node(name="taker", takes=str)),
        edges=_edges("root giver", "giver taker"),
    ),
    "failing": Shape(
        asks="a node that raises beside one at work: do the others go on?",
        nodes=(
            Node(name="root"),
            Node(name="good", does="speak late"),
            Node(name="bad", does="fail", isolated=True),
            Node(name="after"),
        ),
        edges=_edges("root good", "root bad", "good after"),
    ),
}
"""Name -> graph."""
