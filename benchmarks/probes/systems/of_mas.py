"""mas: a team compiled to a plan and played by `play_turn`.

Constructs (docs/teams.md): an agent with several incoming edges waits for all live branches; a role declares its
routes and the kinds of messages that it emits and accepts.
"""

from dataclasses import dataclass

from benchmarks.probes.judge import Failed
from benchmarks.probes.shapes import Node, Shape
from benchmarks.probes.systems import Run, Work
from mas.config.options import ScenarioOptions
from mas.core.environment import Observation
from mas.core.errors import RemoteError
from mas.core.messages import Note, Payload, Plan
from mas.core.policy import Policy
from mas.core.role import Role, RoleSpec, View
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.plan import compile_team
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, play_turn
from mas.scenarios import build_scenario

PACKAGE = "mas"
NOT_OFFERED: dict[str, str] = {}


class Says(Note):
    """A note that takes a route; None takes none."""

    takes: str | None = None

    @property
    def route(self) -> str | None:
        return self.takes


@dataclass(slots=True)
class Member:
    """A role with the routes and kinds of a probe's node."""

    name: str
    spec: RoleSpec
    routes: tuple[str, ...]
    emits: str
    accepts: frozenset[str]

    def prompt(self, view: View) -> str:
        """Its name."""
        return self.name

    def chat(self, view: View) -> tuple[str, str]:
        """Its name, twice."""
        return self.name, self.name

    def earlier(self, view: View) -> tuple[tuple[str, str], ...]:
        """Nothing."""
        return ()

    def prefill(self, view: View) -> str:
        """None."""
        return ""

    def parse(self, text: str) -> Payload:
        """A note that takes the route, if the text is one."""
        return Says(text=text, takes=text if text in self.routes else None)


def build(shape: Shape, work: Work) -> Run:
    """One team turn of the compiled plan."""
    members = {node.name: _member(node, shape) for node in shape.nodes}
    edges = [EdgeSpec(source=edge.source, target=edge.target, when=edge.when) for edge in shape.edges]
    spec = TeamSpec(
        name="probe",
        roles={name: member.spec for name, member in members.items()},
        edges=(
            EdgeSpec(source=START, target=shape.first),
            *edges,
            *(EdgeSpec(source=name, target=DONE) for name in shape.ends),
        ),
        output=(shape.ends or (shape.first,))[0],
        policies={node.name: Policy(on_failure="isolate") for node in shape.nodes if node.isolated},
    )
    roles: dict[str, Role] = dict(members)
    plan = compile_team(spec, roles)
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    blank = {name: Observation({}) for name in members}

    async def decide(point: DecisionPoint) -> Payload:
        try:
            said = await work(point.agent)
        except Failed as error:
            raise RemoteError(str(error)) from error
        return members[point.agent].parse(str(said))

    return lambda: play_turn(Flow.start(plan), environment, blank, 0, decide)


def _member(node: Node, shape: Shape) -> Member:
    emits = _kind(node.gives)
    return Member(
        name=node.name,
        spec=RoleSpec(emits=emits),
        routes=shape.routes if shape.is_router(node.name) else (),
        emits=emits,
        accepts=frozenset({_kind(node.takes), "failure"}),
    )


def _kind(type_: type) -> str:
    """The kind of message that stands for a type of the probes."""
    return Plan.kind if type_ is int else Note.kind
