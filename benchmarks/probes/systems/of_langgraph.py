"""LangGraph: a `StateGraph` over a pydantic state.

Constructs, by the docstrings of `StateGraph` (https://docs.langchain.com/oss/python/langgraph/overview): a node with
`defer` waits until nothing else is left to run (the other join, `add_edge` with a list of sources, waits for all of
them, taken or not); `add_conditional_edges` with a path map routes; a pydantic model as state checks what a node is
given; `error_handler` of `add_node` takes over when a node failed.
"""

from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from benchmarks.probes.shapes import Node, Shape
from benchmarks.probes.systems import Run, Work

PACKAGE = "langgraph"
NOT_OFFERED: dict[str, str] = {}


def _last(before: Any, after: Any) -> Any:
    """Several nodes may write in one step: the last one counts."""
    return after


class State(BaseModel):
    """What nodes read and write."""

    said: Annotated[str, _last] = ""


def build(shape: Shape, work: Work) -> Run:
    """The compiled graph's `ainvoke`."""
    graph = StateGraph(State)
    for node in shape.nodes:
        handler = {"error_handler": _recover} if node.isolated else {}
        graph.add_node(node.name, _function(node, work), defer=node.joins, **handler)
    graph.add_edge(START, shape.first)
    for edge in shape.edges:
        if edge.when is None:
            graph.add_edge(edge.source, edge.target)
    for node in shape.nodes:
        if shape.is_router(node.name):
            targets = {edge.when: edge.target for edge in shape.out_of(node.name)}
            graph.add_conditional_edges(node.name, lambda state: state.said, targets)
    for name in shape.ends:
        graph.add_edge(name, END)
    compiled = graph.compile()
    return lambda: compiled.ainvoke({"said": "go"})


def _function(node: Node, work: Work) -> Callable[[State], Any]:
    async def speak(state: State) -> dict[str, Any]:
        return {"said": await work(node.name)}

    return speak


def _recover(state: State) -> dict[str, Any]:
    return {"said": "failed"}
