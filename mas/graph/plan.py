"""A checked team as an immutable plan that any number of runs share."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import networkx as nx

from mas.core.naming import agent_of
from mas.core.role import Role
from mas.core.seeds import digest
from mas.core.team import DONE, START, TeamSpec
from mas.graph.check import check_team
from mas.graph.wiring import Edge, Wiring, ends_of, gates, seat_of, wire


@dataclass(frozen=True, slots=True, eq=False)
class TeamPlan:
    """A team that passed every check. Pickles as its team and roles; two plans are equal only if they are one.

    Attributes:
        agents: in declared order; all orders of agents that a run shows follow it.
        roles: the role that each agent plays; stand_ins: roles that no agent plays and a policy names.
        graph: networkx view, frozen: nodes `start`, the agents, the ends of teams within, `done`; edges keyed by their
            declared position.
        edges_in: by agent, in declared order.
        bodies: agents of each loop's body, by the loop edge's position.
        wiring: integer tables that the token flow runs on; number: an agent's number in them.
        joins: a node's number by the name that `joins` has for it: agents, `done`, and the ends of teams within.
        timeouts: seconds that a join waits from its first live branch, by the same name, where it has a limit.
        outputs: agents that may speak for the team, as `TeamSpec.outputs`.
        seat_of: the seat that each agent plays for; starting: edges out of `start` that each seat begins with.
        digest: fingerprint of the team's specification.
    """

    spec: TeamSpec
    agents: tuple[str, ...]
    roles: Mapping[str, Role]
    stand_ins: Mapping[str, Role]
    graph: "nx.MultiDiGraph[str]"
    edges_in: Mapping[str, tuple[Edge, ...]]
    bodies: Mapping[int, tuple[str, ...]]
    wiring: Wiring
    number: Mapping[str, int]
    joins: Mapping[str, int]
    timeouts: Mapping[str, float]
    outputs: tuple[str, ...]
    seat_of: Mapping[str, str]
    starting: Mapping[str, tuple[int, ...]]
    digest: str

    def max_visits(self, agent: str) -> int:
        """How often the agent, or each of its instances, can fire in one team turn at most."""
        return self.wiring.max_visits[self.number[agent_of(agent)]]

    def __reduce__(self) -> tuple[Callable[..., "TeamPlan"], tuple[TeamSpec, dict[str, Role]]]:
        members = self.spec.members()
        played = {members[agent]: role for agent, role in self.roles.items()}
        return compile_team, (self.spec, played | dict(self.stand_ins))


def compile_team(spec: TeamSpec, roles: Mapping[str, Role]) -> TeamPlan:
    """Check a team whole and make its plan.

    Args:
        roles: by role name, as `mas.roles.build_roles` makes them.

    Raises:
        GraphError: the team is not well formed; the message lists every problem.
    """
    check_team(spec, roles)
    members = spec.members()
    agents = tuple(members)
    wiring, seats = wire(spec), seat_of(spec)
    return TeamPlan(
        spec=spec,
        agents=agents,
        roles=MappingProxyType({agent: roles[role] for agent, role in members.items()}),
        stand_ins=MappingProxyType({name: roles[name] for name in spec.stand_ins()}),
        graph=_graph(spec),
        edges_in=MappingProxyType({name: tuple(e for e in wiring.edges if e.target == name) for name in agents}),
        bodies=MappingProxyType(
            {loop.edge: tuple(wiring.names[node] for node in loop.body if node < len(agents)) for loop in wiring.loops}
        ),
        wiring=wiring,
        number=MappingProxyType({name: index for index, name in enumerate(agents)}),
        joins=MappingProxyType({name: index for index, name in enumerate(wiring.names)}),
        timeouts=MappingProxyType({name: join.timeout_s for name, join in spec.joins.items() if join.timeout_s}),
        outputs=spec.outputs,
        seat_of=MappingProxyType({name: seats[name] for name in agents}),
        starting=MappingProxyType(_starting(spec, wiring, seats)),
        digest=digest("plan", _written(spec)),
    )


def _starting(spec: TeamSpec, wiring: Wiring, seats: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    if not spec.seats:
        return {spec.seat: wiring.starting}
    heads = {index: ends_of(spec, spec.edges[index])[1] for index in wiring.starting}
    return {seat: tuple(index for index, head in heads.items() if seats[head] == seat) for seat in spec.seats}


def _written(spec: TeamSpec) -> str:
    """The whole team as text; journals of teams that were played before `joint`, `seats`, `text`, `tools`,
    `experiences`, `a2a` and `privileges` were known stay theirs."""
    written = spec.model_dump(mode="json")
    for key in ("joint", "seats", "text", "tools"):
        if not written[key]:
            del written[key]
    for role in written["roles"].values():
        for key in ("experiences", "tools", "a2a", "privileges"):
            if not role[key]:
                del role[key]
    return json.dumps(written, separators=(",", ":"), ensure_ascii=False)


def _graph(spec: TeamSpec) -> "nx.MultiDiGraph[str]":
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=spec.name)
    graph.add_node(START)
    for agent, role in spec.members().items():
        graph.add_node(agent, role=role, join=spec.join(agent).need)
    for gate in gates(spec):
        graph.add_node(gate, join=spec.join(gate.removesuffix(f".{START}")).need)
    graph.add_node(DONE, join=spec.join(DONE).need)
    for index, edge in enumerate(spec.edges):
        graph.add_edge(*ends_of(spec, edge), key=index, when=edge.when, loop=edge.loop, map=edge.map)
    frozen: nx.MultiDiGraph[str] = nx.freeze(graph)
    return frozen
