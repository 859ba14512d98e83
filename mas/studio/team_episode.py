"""Which edges each recorded answer travelled on: the team's token flow, played again with what was said.

A record holds what agents said, not which edges took it there. The flow says so exactly where the roles can be made
here; where it cannot be played again (a class that is not imported, a turn that was cut short), an answer is taken to
reach those that its agent has an edge to and that speak later in the turn.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from mas.core.errors import MasError
from mas.core.naming import agent_of
from mas.core.records import Line
from mas.core.role import Roles
from mas.core.team import DONE, TeamSpec
from mas.graph.plan import TeamPlan, compile_team
from mas.graph.wiring import drawn_edges
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.flow_state import KEPT, LIVE
from mas.studio.team_text import foreign_types


class Travel(msgspec.Struct, frozen=True, kw_only=True):
    """Where the answers of one team turn went.

    Attributes:
        turn: number of the turn.
        began: positions of the edges that the turn began on.
        edges: of each answer, those that it travelled on.
        is_exact: whether the flow said so.
    """

    turn: int
    began: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]
    is_exact: bool


def travels(spec: TeamSpec, lines: Sequence[Line]) -> tuple[Travel, ...]:
    """One record per team turn of an episode, in order."""
    plan, roles = _plan_of(spec)
    return tuple(_travel(spec, plan, roles, turn, list(said)) for turn, said in groupby(lines, lambda line: line.turn))


def _plan_of(spec: TeamSpec) -> tuple[TeamPlan | None, Roles]:
    if foreign_types(spec):
        return None, {}
    try:
        roles = build_roles(spec)
        return compile_team(spec, roles), roles
    except MasError:
        return None, {}


def _travel(spec: TeamSpec, plan: TeamPlan | None, roles: Roles, turn: int, lines: Sequence[Line]) -> Travel:
    quiet = [agent for agent in spec.members() if agent not in {agent_of(line.agent) for line in lines}]
    for silent in ((), tuple(quiet)):
        if plan is None:
            break
        try:
            began, *edges = _played(plan, roles, lines, silent)
        except MasError:
            continue
        return Travel(turn=turn, began=began, edges=tuple(edges), is_exact=True)
    guessed = tuple(_guessed(spec, lines, number) for number in range(len(lines)))
    drawn = drawn_edges(spec)
    first = agent_of(lines[0].agent)
    began = tuple(number for number, edge in enumerate(drawn) if edge.source == "start" and edge.target == first)
    return Travel(turn=turn, began=began, edges=guessed, is_exact=False)


def _played(plan: TeamPlan, roles: Roles, lines: Sequence[Line], silent: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The edges that the turn began on, then those of each answer.

    Raises:
        RunError: the flow cannot have gone like this.
    """
    members = plan.spec.members()
    seats = {plan.seat_of[name] for line in lines if (name := agent_of(line.agent)) in plan.seat_of}
    flow = Flow.start(plan, seats, silent)
    yield tuple(number for number, token in enumerate(flow.tokens) if token in (LIVE, KEPT))
    for line in lines:
        role = roles.get(members.get(agent_of(line.agent), ""))
        if role is None:
            yield ()
            continue
        before = flow
        flow = flow.begin(line.agent).complete(line.agent, role.parse(line.text))
        yield tuple(_lit(plan, before, flow))


def _lit(plan: TeamPlan, before: Flow, after: Flow) -> Iterator[int]:
    """Edges that something travelled on between two moments."""
    for edge in plan.wiring.edges:
        if edge.loop is not None:
            if after.uses[edge.loop] > before.uses[edge.loop]:
                yield edge.index
        elif after.tokens[edge.index] == LIVE != before.tokens[edge.index]:
            yield edge.index


def _guessed(spec: TeamSpec, lines: Sequence[Line], number: int) -> tuple[int, ...]:
    own = agent_of(lines[number].agent)
    later = {agent_of(line.agent) for line in lines[number + 1 :]} | ({DONE} if number == len(lines) - 1 else set())
    drawn = enumerate(drawn_edges(spec))
    return tuple(at for at, edge in drawn if edge.source == own and edge.target in later)
