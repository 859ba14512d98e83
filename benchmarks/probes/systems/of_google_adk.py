"""Google ADK: a graph `Workflow` of function nodes.

Constructs, by the docstrings of `google.adk.workflow` (https://google.github.io/adk-docs/): edges with a `route`
follow what a node's event names; a `JoinNode` waits for all nodes before it; a function's parameter types check what
it is given.
"""

from collections.abc import Callable
from typing import Any

from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.adk.workflow import START, Edge, FunctionNode, JoinNode, Workflow
from google.genai import types

from benchmarks.probes.shapes import Node, Shape
from benchmarks.probes.systems import Run, Work

PACKAGE = "google-adk"
NOT_OFFERED: dict[str, str] = {}


def build(shape: Shape, work: Work) -> Run:
    """A run of the workflow in a session of its own."""
    nodes = {node.name: FunctionNode(func=_function(node, shape, work), name=node.name) for node in shape.nodes}
    joins = {node.name: JoinNode(name=f"join_{node.name}") for node in shape.nodes if node.joins}
    edges = [Edge(from_node=START, to_node=nodes[shape.first])]
    for edge in shape.edges:
        target = joins.get(edge.target) or nodes[edge.target]
        edges.append(Edge(from_node=nodes[edge.source], to_node=target, route=edge.when))
    edges += [Edge(from_node=join, to_node=nodes[name]) for name, join in joins.items()]
    workflow = Workflow(name="probe", edges=edges)

    async def run() -> None:
        runner = InMemoryRunner(node=workflow, app_name="probe")
        session = await runner.session_service.create_session(app_name="probe", user_id="user")
        go = types.Content(role="user", parts=[types.Part(text="go")])
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=go):
            pass

    return run


def _function(node: Node, shape: Shape, work: Work) -> Callable[..., Any]:
    # A workflow refuses output from more than one of its ends.
    is_one_of_several_ends = len(shape.ends) > 1 and node.name in shape.ends

    async def speak(node_input: Any) -> Event | None:
        said = await work(node.name)
        if is_one_of_several_ends:
            return None
        return Event(output=said, route=said) if shape.is_router(node.name) else Event(output=said)

    is_plain = not node.joins and node.name != shape.first
    speak.__annotations__["node_input"] = node.takes if is_plain else Any
    return speak
