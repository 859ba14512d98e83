"""Teams that play several seats: who plays for which, and that no message goes from one seat to another."""

from typing import Any

import pytest

from mas.core.errors import GraphError
from mas.core.messages import Action
from mas.core.team import TeamSpec
from mas.graph.plan import TeamPlan, compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.play import seat_actions

PAIR: dict[str, Any] = {
    "name": "pair",
    "roles": {name: {"type": "executor"} for name in ("a", "b")},
    "seats": {"first": "a", "second": "b"},
    "edges": ["start -> a", "start -> b", "a -> done", "b -> done"],
    "output": "a",
}


def plan_of(**changes: Any) -> TeamPlan:
    spec = TeamSpec.model_validate(PAIR | changes)
    return compile_team(spec, build_roles(spec))


def said(flow: Flow, agent: str, text: str) -> Flow:
    return flow.begin(agent).complete(agent, Action(text=text))


def test_only_the_agents_of_seats_that_move_begin_and_the_turn_ends_with_them() -> None:
    plan = plan_of()
    for seat, agent in (("first", "a"), ("second", "b")):
        flow = Flow.start(plan, (seat,))
        assert flow.ready() == (agent,)
        flow = said(flow, agent, "move")
        assert flow.committed
        assert seat_actions(flow, (seat,)) == {seat: "move"}


def test_seats_that_move_at_once_both_begin_and_the_turn_waits_for_both() -> None:
    flow = Flow.start(plan_of(), ("first", "second"))
    assert flow.ready() == ("a", "b")
    flow = said(flow, "b", "paper")
    assert not flow.finished
    flow = said(flow, "a", "rock")
    assert seat_actions(flow, ("first", "second")) == {"first": "rock", "second": "paper"}
    assert flow.action() == Action(text='{"a":"rock","b":"paper"}')


def test_a_seat_may_have_a_team_of_its_own() -> None:
    roles = PAIR["roles"] | {"coach": {"type": "planner"}}
    edges = ["start -> coach", "coach -> a", *PAIR["edges"][1:]]
    plan = plan_of(roles=roles, edges=edges)
    assert dict(plan.seat_of) == {"a": "first", "coach": "first", "b": "second"}
    assert Flow.start(plan, ("first",)).ready() == ("coach",)
    assert Flow.start(plan, ("second",)).ready() == ("b",)


def test_a_team_of_one_seat_is_as_it_was() -> None:
    spec = TeamSpec.model_validate(
        {"name": "one", "roles": {"a": {"type": "executor"}}, "edges": ["start -> a", "a -> done"], "output": "a"}
    )
    plan = compile_team(spec, build_roles(spec))
    assert (spec.plays, dict(plan.seat_of)) == ({"team": "a"}, {"a": "team"})
    assert Flow.start(plan, ("team",)) == Flow.start(plan)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"edges": [*PAIR["edges"], "a -> b"]}, "seats first, second are joined by edges"),
        ({"seats": {"first": "a", "second": "c"}}, "'seats' names the unknown agent 'c'"),
        ({"seats": {"first": "a", "second": "a"}}, "'seats' names an agent twice"),
        ({"seats": {"first": "a"}}, "agents b play for no seat"),
        ({"seat": "first"}, "'seat' .'first'. and 'seats' exclude each other"),
        ({"joint": ["a", "b"]}, "leave 'joint' and 'else_output' out"),
        ({"output": "c", "roles": PAIR["roles"] | {"c": {"type": "executor"}}}, "'output' 'c' speaks for no seat"),
    ],
)
def test_seats_that_are_not_well_formed_are_refused_with_the_reason(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(GraphError, match=why):
        plan_of(**changes)
