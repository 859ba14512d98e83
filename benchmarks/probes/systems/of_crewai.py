"""CrewAI: a `Flow` class.

Constructs, by the docstrings of `crewai.flow` (https://docs.crewai.com): `@start`, `@listen` to a method or a
router's label, `and_` to wait for all, `@router`; a way back is a router's label, too, as loops are written there.
"""

from typing import Any

from crewai.flow.flow import Flow, and_, listen, or_, router, start

from benchmarks.probes.shapes import Edge, Shape
from benchmarks.probes.systems import Run, Work

PACKAGE = "crewai"
NOT_OFFERED = {
    "type": "what methods hand on has no declared type",
    "unreachable": "a method without a trigger is no part of the flow",
}


def build(shape: Shape, work: Work) -> Run:
    """The flow's `kickoff_async`."""
    methods = {node.name: _method(node.name, shape, work) for node in shape.nodes}
    flow = type("Probe", (Flow,), methods)()
    return lambda: flow.kickoff_async()


def _method(name: str, shape: Shape, work: Work) -> Any:
    back = [_label(edge) for edge in shape.out_of(name) if _leads_back(edge, shape)]

    async def speak(self: Any) -> Any:
        said = await work(name)
        return back[0] if back else said

    speak.__name__ = speak.__qualname__ = name
    triggers = [_label(edge) if _leads_back(edge, shape) else edge.when or edge.source for edge in shape.into(name)]
    joins = next(node.joins for node in shape.nodes if node.name == name)
    if not triggers:
        return start()(speak)
    trigger = triggers[0] if len(triggers) == 1 else (and_ if joins else or_)(*triggers)
    if back or shape.is_router(name):
        return router(trigger, emit=back or list(shape.routes))(speak)
    return listen(trigger)(speak)


def _leads_back(edge: Edge, shape: Shape) -> bool:
    order = [node.name for node in shape.nodes]
    return order.index(edge.target) < order.index(edge.source)


def _label(edge: Edge) -> str:
    return f"back_to_{edge.target}"
