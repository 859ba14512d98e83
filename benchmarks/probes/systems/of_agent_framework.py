"""Microsoft Agent Framework: a `Workflow` of function executors with declared input and output types.

Constructs, by the docstrings of `WorkflowBuilder` (https://aka.ms/agent-framework): `add_fan_out_edges` and
`add_fan_in_edges`, the latter waiting for all sources; `add_edge` with a condition routes.
"""

from collections.abc import Callable
from typing import Any

from agent_framework import FunctionExecutor, WorkflowBuilder, WorkflowContext, executor

from benchmarks.probes.shapes import Node, Shape
from benchmarks.probes.systems import Run, Work

PACKAGE = "agent-framework-core"
NOT_OFFERED = {"route": "routes have no names: a condition is a function of the message"}


def build(shape: Shape, work: Work) -> Run:
    """The workflow's `run`."""
    nodes = {node.name: _executor(node, shape, work) for node in shape.nodes}
    builder = WorkflowBuilder(start_executor=nodes[shape.first], output_from="all")
    for node in shape.nodes:
        if node.joins:
            builder.add_fan_in_edges([nodes[edge.source] for edge in shape.into(node.name)], nodes[node.name])
        plain = [edge for edge in shape.out_of(node.name) if not _joins(shape, edge.target)]
        if len(plain) > 1 and not shape.is_router(node.name):
            builder.add_fan_out_edges(nodes[node.name], [nodes[edge.target] for edge in plain])
            continue
        for edge in plain:
            builder.add_edge(nodes[edge.source], nodes[edge.target], condition=_condition(edge.when))
    workflow = builder.build()
    return lambda: workflow.run("go")


def _joins(shape: Shape, name: str) -> bool:
    return next(node.joins for node in shape.nodes if node.name == name)


def _condition(when: str | None) -> Callable[[Any], bool] | None:
    return None if when is None else lambda message: bool(message == when)


def _executor(node: Node, shape: Shape, work: Work) -> FunctionExecutor:
    takes: Any = list[str] if node.joins else node.takes
    is_end = node.name in shape.ends

    async def speak(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        said = await work(node.name)
        await (ctx.yield_output(said) if is_end else ctx.send_message(said))

    types = {"workflow_output": node.gives} if is_end else {"output": node.gives}
    return executor(id=node.name, input=takes, **types)(speak)
