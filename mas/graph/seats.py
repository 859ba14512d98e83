"""Teams that play several seats of a world at once, as self-play does: which member plays for which seat.

Members of different seats share no edge, so that nothing which one seat is told or says is heard in another: what both
may know is in the views that the world shows them.
"""

from collections.abc import Mapping

import networkx as nx

from mas.core.naming import did_you_mean
from mas.core.team import DONE, START, TeamSpec
from mas.graph.wiring import drawn_edges


def seat_of(spec: TeamSpec) -> dict[str, str]:
    """Node of a checked team -> the seat that it plays for; agents, and the ends of teams within."""
    if not spec.seats:
        return dict.fromkeys(spec.members(), spec.seat)
    return {node: seat for part, seats in _parts(spec) for node in part for seat in seats}


def seat_problems(spec: TeamSpec) -> list[str]:
    """What is wrong with `seats`."""
    if not spec.seats:
        return []
    members = spec.members()
    problems = [
        f"'seats' names the unknown agent {agent!r}. {did_you_mean(agent, members)}"
        for agent in spec.seats.values()
        if agent not in members
    ]
    if "seat" in spec.model_fields_set:
        problems.append(f"'seat' ({spec.seat!r}) and 'seats' exclude each other; leave 'seat' out")
    if len(set(spec.seats.values())) < len(spec.seats):
        problems.append("'seats' names an agent twice; each seat has one of its own (agents may play one role)")
    if spec.output not in spec.seats.values():
        problems.append(f"'output' {spec.output!r} speaks for no seat; name one of {', '.join(spec.seats.values())}")
    if spec.joint or spec.else_output:
        problems.append("'seats' says who speaks for each seat; leave 'joint' and 'else_output' out")
    return problems or _part_problems(spec)


def _part_problems(spec: TeamSpec) -> list[str]:
    problems = []
    for part, seats in _parts(spec):
        if len(seats) > 1:
            problems.append(
                f"seats {', '.join(seats)} are joined by edges ({', '.join(part)}): one would hear what is said in the "
                "other; what both may know belongs into the world's views"
            )
        if not seats:
            problems.append(f"agents {', '.join(part)} play for no seat: lead them to {', '.join(spec.seats.values())}")
    return problems


def _parts(spec: TeamSpec) -> list[tuple[list[str], list[str]]]:
    """The team without its ends falls apart into these: nodes, and the seats that they speak for."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(spec.members())
    for edge in drawn_edges(spec):
        ends = [end for end in (edge.source, edge.target) if end not in (START, DONE)]
        graph.add_nodes_from(ends)
        graph.add_edges_from([(ends[0], ends[-1])] if len(ends) == 2 else [])
    outputs: Mapping[str, str] = {agent: seat for seat, agent in spec.seats.items()}
    parts = [sorted(part) for part in nx.connected_components(graph)]
    return [(part, [outputs[node] for node in part if node in outputs]) for part in parts]
