"""Failures that graphs of agents are known for, one test each: refused when a team is built, or impossible to run into.

The last test looks for a turn that hangs among random teams with everything there is.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import contents, said_all, say
from test_flow_properties import plans, play, unhurried

from mas.core.errors import GraphError
from mas.graph import TeamPlan, compile_team, load_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.testing.teams import plan_of


def refused(*edges: str) -> str:
    with pytest.raises(GraphError) as caught:
        plan_of(edges)
    return str(caught.value)


def typed(**changes: object) -> dict[str, object]:
    roles = {"planner": {"type": "planner"}, "executor": {"type": "executor"}, "verifier": {"type": "verifier"}}
    edges = ["start -> planner", "planner -> executor", "executor -> verifier", "verifier -> done"]
    return {"name": "t", "roles": roles, "edges": edges, "output": "executor"} | changes


def refused_types(**changes: object) -> str:
    spec = load_team(typed(**changes))
    with pytest.raises(GraphError) as caught:
        compile_team(spec, build_roles(spec))
    return str(caught.value)


def test_an_unreachable_node_is_refused_when_the_team_is_built() -> None:
    assert "agent 'b' cannot be reached from 'start'" in refused("start -> a", "a -> done", "b -> done")


def test_a_node_that_leads_nowhere_is_refused_when_the_team_is_built() -> None:
    assert "from agent 'b' no path leads to 'done'" in refused("start -> a", "a -> done", "a -> b")


def test_a_cycle_without_a_bound_is_refused_when_the_team_is_built() -> None:
    message = refused("start -> a", "a -> b", "b -> a when again", "b -> done when on")
    assert "the cycle a -> b -> a has no bound" in message


def test_a_cycle_that_never_takes_its_exit_ends_at_its_bound() -> None:
    flow = Flow.start(plan_of(["start -> a", "a -> b", "b -> a when again loop 3", "b -> done when on"]))
    fired = 0
    while not flow.finished:
        flow = say(flow, flow.ready()[0], "again")
        fired += 1
    assert fired == 8, "two agents, once and three times again"
    assert not flow.committed


def test_a_cycle_through_a_team_within_needs_a_bound_too() -> None:
    inner = plan_of(["start -> x", "x -> done"]).spec
    with pytest.raises(GraphError, match="the cycle a -> s -> a has no bound"):
        plan_of(["start -> a", "a -> s", "s -> a when on", "s -> done when off"], teams={"s": inner})


@pytest.mark.parametrize("join", ["all", "any", "quorum", 2, {"need": 2, "unmet": "skip"}])
def test_a_join_after_an_untaken_branch_does_not_hang(join: object) -> None:
    edges = ["start -> a", "a -> b when left", "a -> c when right", "b -> j", "c -> j", "j -> done"]
    flow = said_all(plan_of(edges, joins={"j": join}), ("a", "left"), ("b", "x"))
    is_strict = isinstance(join, dict)
    assert flow.ready() == (() if is_strict else ("j",))
    assert flow.finished == is_strict


def test_branches_of_unequal_depth_into_one_join_fire_it_once() -> None:
    edges = ["start -> a", "start -> b", "b -> c", "c -> d", "a -> j", "d -> j", "j -> done"]
    flow = said_all(plan_of(edges), ("a", "short"), ("b", "x"), ("c", "x"))
    assert flow.ready() == ("d",)
    flow = say(say(flow, "d", "long"), "j")
    assert (flow.finished, flow.visits("j")) == (True, 1)
    assert contents(flow, "j") == [("a", "short"), ("d", "long")]


def test_a_route_that_is_misspelt_is_refused_when_the_team_is_built() -> None:
    edges = ["start -> planner", "planner -> executor", "executor -> verifier"]
    edges += ["verifier -> done when acept", "verifier -> executor when reject loop 1"]
    assert "has the route 'acept', which role 'verifier' does not have. Did you mean 'accept'" in refused_types(
        edges=edges
    )


def test_an_output_without_a_route_ends_the_branch_and_not_the_run() -> None:
    flow = said_all(plan_of(["start -> a", "a -> b when on", "a -> done when off", "b -> done"]), ("a", "neither"))
    assert (flow.finished, flow.committed) == (True, False)


def test_a_kind_that_its_reader_does_not_take_is_refused_when_the_team_is_built() -> None:
    edges = ["start -> executor", "executor -> verifier", "verifier -> planner", "planner -> done"]
    message = refused_types(edges=edges)
    assert "edge 'verifier -> planner' brings 'verdict', which role 'planner' does not accept" in message


def test_a_join_of_two_fires_once_however_many_come() -> None:
    workers = [f"w{number}" for number in range(5)]
    edges = [*(f"start -> {name}" for name in workers), *(f"{name} -> j" for name in workers), "j -> done"]
    flow = Flow.start(plan_of(edges, output="j", joins={"j": 2}))
    for name in workers:
        flow = say(flow, name)
        if "j" in flow.ready():
            flow = say(flow, "j")
    assert (flow.finished, flow.visits("j"), len(flow.messages("j"))) == (True, 1, 5)


def test_a_branch_that_never_answers_cannot_hold_a_join_with_a_time_limit() -> None:
    edges = ["start -> quick", "start -> stuck", "quick -> j", "stuck -> j", "j -> done"]
    plan = plan_of(edges, joins={"j": {"timeout_s": 1}, "done": "any"})
    flow = say(Flow.start(plan).begin("stuck"), "quick").expire("j")
    flow = say(flow, "j")
    assert (flow.finished, flow.committed, flow.running()) == (True, True, ("stuck",))


def test_an_empty_list_does_not_hang_its_join() -> None:
    edges = ["start -> p", "p -> w map", "w -> j", "p -> j", "j -> done"]
    assert said_all(plan_of(edges), ("p", "")).ready() == ("j",)


@unhurried
@given(plan=plans(), data=st.data())
def test_no_join_ever_hangs_and_no_node_fires_beyond_its_bound(plan: TeamPlan, data: st.DataObject) -> None:
    assert play(plan, data).finished
