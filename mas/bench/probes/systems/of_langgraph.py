"""LangGraph: a `StateGraph` over a pydantic state.

Constructs, by the docstrings of `StateGraph` (https://docs.langchain.com/oss/python/langgraph/overview): `add_edge`
with a list of sources waits for all of them; `add_conditional_edges` with a path map routes; a pydantic model as
state checks what a node is given; `error_handler` of `add_node` takes over when a node failed.
"""

from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from mas.bench.probes.shapes import Node, Shape
from mas.bench.probes.systems import Run, Work

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
        graph.add_node(node.name, _function(node, work), **({"error_handler": _recover} if node.isolated else {}))
    graph.add_edge(START, shape.first)
    for node in shape.nodes:
        sources = [edge.source for edge in shape.into(node.name) if edge.when is None]
        if node.joins:
            graph.add_edge(sources, node.name)
            continue
        for source in sources:
            graph.add_edge(source, node.name)
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
