"""pydantic-graph: a graph of `GraphBuilder`.

Constructs, by its docstrings (https://pydantic.dev/docs/ai/graph/graph/): steps, broadcasts by several edges from one
step, joins with a reducer, and decisions whose branches match a value. A caller that iterates over a run gets a
node's error and may go on without it (`override_next`). Types of edges are for static checkers, which are not run
here.
"""

from typing import Any, Literal

from pydantic_graph import GraphBuilder, StepContext, reduce_list_append

from benchmarks.probes.judge import Failed
from benchmarks.probes.shapes import Node, Shape
from benchmarks.probes.systems import Run, Work

PACKAGE = "pydantic-graph"
NOT_OFFERED: dict[str, str] = {}


def build(shape: Shape, work: Work) -> Run:
    """The graph's `run`; where it has several ends, they are joined."""
    builder: Any = GraphBuilder(input_type=str, output_type=object)
    steps = {node.name: builder.step(_function(node, work), node_id=node.name) for node in shape.nodes}
    entrances = {node.name: steps[node.name] for node in shape.nodes}
    for node in shape.nodes:
        if node.joins:
            entrances[node.name] = builder.join(reduce_list_append, initial_factory=list, node_id=f"join_{node.name}")
            builder.add(builder.edge_from(entrances[node.name]).to(steps[node.name]))
    end = builder.end_node
    if len(shape.ends) > 1:
        end = builder.join(reduce_list_append, initial_factory=list, node_id="join_ends")
        builder.add(builder.edge_from(end).to(builder.end_node))
    builder.add(builder.edge_from(builder.start_node).to(steps[shape.first]))
    for node in shape.nodes:
        out = shape.out_of(node.name)
        if shape.is_router(node.name):
            decision = builder.decision()
            for edge in out:
                decision = decision.branch(builder.match(Literal[edge.when]).to(entrances[edge.target]))
            builder.add(builder.edge_from(steps[node.name]).to(decision))
        else:
            targets = [entrances[edge.target] for edge in out] or [end]
            builder.add(builder.edge_from(steps[node.name]).to(*targets))
    graph = builder.build()
    if any(node.isolated for node in shape.nodes):
        return lambda: _iterate(graph)
    return lambda: graph.run(inputs="go")


async def _iterate(graph: Any) -> None:
    """Goes on without the node that failed."""
    async with graph.iter(inputs="go") as run:
        while True:
            try:
                await anext(run)
            except Failed:
                run.override_next([])
            except StopAsyncIteration:
                return


def _function(node: Node, work: Work) -> Any:
    async def speak(ctx: Any) -> Any:
        return await work(node.name)

    speak.__annotations__ = {"ctx": StepContext[None, None, node.takes], "return": node.gives}
    return speak
