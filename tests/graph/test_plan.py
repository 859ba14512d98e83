import dataclasses
import pickle
from pathlib import Path

import networkx as nx
import pytest

from mas.graph import compile_team, load_team
from mas.roles import build_roles
from mas.testing.teams import plan_of, team_of

DPE = Path(__file__).parent / "data" / "plan_execute_verify.yaml"


def test_a_plan_holds_agents_roles_and_edges_in_declared_order() -> None:
    spec = load_team(DPE)
    plan = compile_team(spec, build_roles(spec))
    assert plan.agents == ("planner", "executor", "verifier", "feedback")
    assert plan.roles["verifier"].routes == ("accept", "reject")
    assert [edge.index for edge in plan.edges_in["executor"]] == [1, 5]
    assert [(edge.target, edge.when) for edge in plan.wiring.out[plan.number["verifier"]]] == [
        ("done", "accept"),
        ("feedback", "reject"),
    ]


def test_the_body_of_a_loop_lies_between_its_ends() -> None:
    spec = load_team(DPE)
    assert compile_team(spec, build_roles(spec)).bodies == {5: ("executor", "verifier", "feedback")}


def test_a_branch_that_does_not_lead_back_is_no_part_of_the_body() -> None:
    plan = plan_of(
        ["start -> a", "a -> b", "a -> c", "b -> a when again loop 2", "b -> d when on", "c -> d", "d -> done"]
    )
    assert plan.bodies == {3: ("a", "b")}


def test_an_agent_may_loop_onto_itself() -> None:
    plan = plan_of(["start -> a", "a -> a when again loop 2", "a -> done when on"])
    assert plan.bodies == {1: ("a",)}
    assert plan.max_visits("a") == 3


def test_bounds_of_nested_loops_multiply() -> None:
    edges = [
        "start -> a",
        "a -> b",
        "b -> b when again loop 2",
        "b -> c when on",
        "c -> a when again loop 3",
        "c -> done when on",
    ]
    plan = plan_of(edges)
    # Outer iterations: 1 + 3. In each, b fires 1 + 2 times: 12.
    assert [plan.max_visits(agent) for agent in "abc"] == [4, 12, 4]


def test_edges_out_of_inner_loops_are_released_first() -> None:
    edges = [
        "start -> a",
        "a -> b",
        "b -> b when again loop 2",
        "b -> c when on",
        "c -> a when again loop 3",
        "c -> done when on",
    ]
    assert plan_of(edges).wiring.releases == (((3,),), ((5,),))


def test_the_graph_is_a_frozen_multigraph_keyed_by_position() -> None:
    graph = plan_of(["start -> a", "a -> done when x", "a -> done when y"]).graph
    assert [(s, t, k, d["when"]) for s, t, k, d in graph.edges(keys=True, data=True)] == [
        ("start", "a", 0, None),
        ("a", "done", 1, "x"),
        ("a", "done", 2, "y"),
    ]
    assert graph.nodes["a"] == {"role": "a", "join": "all"}
    with pytest.raises(nx.NetworkXError, match=r"[Ff]rozen"):
        graph.add_edge("a", "b")


def test_a_plan_cannot_be_changed() -> None:
    plan = plan_of(["start -> a", "a -> done"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.agents = ()
    with pytest.raises(TypeError):
        plan.roles["a"] = plan.roles["a"]


def test_the_digest_depends_on_the_specification_and_on_nothing_else() -> None:
    one, same = plan_of(["start -> a", "a -> done"]), plan_of(["start -> a", "a -> done"])
    other = plan_of(["start -> a", "a -> done"], joins={"a": "any"})
    assert one.digest == same.digest
    assert one.digest != other.digest


def test_a_plan_survives_pickling() -> None:
    spec, roles = team_of(["start -> a", "a -> a when again loop 1", "a -> done when on"])
    plan = compile_team(spec, roles)
    copy = pickle.loads(pickle.dumps(plan))
    assert (copy.spec, copy.digest, copy.wiring, dict(copy.roles)) == (
        plan.spec,
        plan.digest,
        plan.wiring,
        dict(plan.roles),
    )
