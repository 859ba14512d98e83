"""Lists handed out item by item: instances, their order, empty lists, lists that are too long, loops."""

import pytest
from steps import contents, said_all, say

from mas.core.errors import ConfigError, GraphError, RunError
from mas.core.messages import Failure, Items, Note
from mas.core.role import RoleSpec
from mas.graph import TeamPlan, compile_team
from mas.roles.build import build_role
from mas.runtime.flow import Flow
from mas.testing.teams import plan_of, team_of

MAPPED = ("start -> planner", "planner -> worker map", "worker -> judge", "judge -> done")


def mapped() -> TeamPlan:
    return plan_of(MAPPED)


def test_an_instance_is_ready_for_every_item_and_hears_its_own_alone() -> None:
    flow = said_all(mapped(), ("planner", "red green blue"))
    assert flow.ready() == ("worker[0]", "worker[1]", "worker[2]")
    assert contents(flow, "worker[1]") == [("planner", "green")]
    assert flow.messages("worker[1]")[0].payload == Note(text="green")
    assert contents(flow, "worker") == [("planner", "1. red\n2. green\n3. blue")]


def test_outputs_join_in_the_order_of_the_items_whoever_was_quick() -> None:
    flow = said_all(mapped(), ("planner", "x y z"))
    flow = flow.begin("worker[2]").begin("worker[0]")
    assert (flow.ready(), flow.running()) == (("worker[1]",), ("worker[0]", "worker[2]"))
    flow = flow.complete("worker[2]", Note(text="third")).complete("worker[0]", Note(text="first"))
    assert (flow.ready(), flow.running(), flow.visits("worker")) == (("worker[1]",), (), 0)
    flow = say(flow, "worker[1]", "second")
    assert flow.ready() == ("judge",)
    assert [message.payload for message in flow.messages("judge")] == [Items(items=("first", "second", "third"))]
    assert [flow.visits(name) for name in ("worker", "worker[0]", "worker[2]")] == [1, 1, 1]
    assert [payload.content for payload in flow.own("worker[2]")] == ["third"]
    assert flow.outputs["worker"] == Items(items=("first", "second", "third"))


def test_the_failure_of_an_instance_is_passed_on_as_data() -> None:
    flow = said_all(mapped(), ("planner", "x y"), ("worker[0]", "fail"), ("worker[1]", "ok"))
    assert isinstance(flow.own("worker[0]")[0], Failure)
    assert contents(flow, "judge") == [("worker", "1. ?\n2. ok")]


@pytest.mark.parametrize("text", ["", "fail"])
def test_a_list_without_items_and_a_failure_are_a_branch_not_taken(text: str) -> None:
    plan = plan_of([*MAPPED, "planner -> judge"])
    flow = said_all(plan, ("planner", text))
    assert flow.ready() == ("judge",)
    assert (flow.own("worker"), flow.running()) == ((), ())
    assert said_all(mapped(), ("planner", text)).finished


def test_a_list_that_is_longer_than_its_role_may_make_is_refused() -> None:
    flow = Flow.start(mapped()).begin("planner")
    eight = flow.complete("planner", Items(items=("x",) * 8))
    assert len(eight.ready()) == 8 == max(mapped().wiring.items)
    with pytest.raises(RunError, match=r"'planner' sent 9 items to 'worker', but its role declares max_items: 8"):
        flow.complete("planner", Items(items=("x",) * 9))


def test_what_the_instances_said_can_be_handed_out_again() -> None:
    edges = ("start -> p", "p -> w map", "w -> check map", "check -> judge", "judge -> done")
    flow = said_all(plan_of(edges), ("p", "x y"), ("w[0]", "a"), ("w[1]", "b"))
    assert flow.ready() == ("check[0]", "check[1]")
    assert contents(flow, "check[1]") == [("w", "b")]
    flow = say(say(flow, "check[1]", "d"), "check[0]", "c")
    assert contents(flow, "judge") == [("check", "1. c\n2. d")]


LOOPED = ("start -> p", "p -> w map", "w -> j", "j -> p when again loop 1", "j -> done when on")


def test_a_loop_hands_out_a_new_list() -> None:
    flow = said_all(plan_of(LOOPED), ("p", "x y z"), ("w[0]", "1"), ("w[1]", "2"), ("w[2]", "3"), ("j", "again"))
    flow = say(flow, "p", "u v")
    assert flow.ready() == ("w[0]", "w[1]")
    assert contents(flow, "w[0]") == [("p", "x"), ("p", "u")]
    flow = say(say(flow, "w[1]", "5"), "w[0]", "4")
    assert contents(flow, "j") == [("w", "1. 1\n2. 2\n3. 3"), ("w", "1. 4\n2. 5")]
    assert [flow.visits(name) for name in ("w", "w[0]", "w[2]")] == [2, 2, 1]
    assert say(flow, "j", "on").committed


def test_instances_of_an_iteration_that_is_over_finish_unheard_and_those_not_begun_never_do() -> None:
    edges = (
        "start -> q",
        "start -> p",
        "p -> w map",
        "w -> j",
        "q -> j",
        "j -> p when again loop 1",
        "j -> done when on",
    )
    flow = said_all(plan_of(edges, joins={"j": "any"}), ("p", "x y")).begin("w[1]")
    flow = say(say(flow, "q"), "j", "again")
    assert (flow.ready(), flow.running()) == (("p",), ("w[1]",))
    flow = say(flow, "p", "z")
    assert flow.ready() == ()
    flow = flow.complete("w[1]", Note(text="stale"))
    assert flow.ready() == ("w[0]",)
    assert [payload.content for payload in flow.own("w[1]")] == ["stale"]
    assert contents(say(flow, "w[0]", "new"), "j") == [("q", "x"), ("w", "1. new")]


def test_instances_that_have_not_begun_do_not_hold_up_the_next_iteration() -> None:
    edges = (
        "start -> q",
        "start -> p",
        "p -> w map",
        "w -> j",
        "q -> j",
        "j -> p when again loop 1",
        "j -> done when on",
    )
    flow = said_all(plan_of(edges, joins={"j": "any"}), ("p", "x y"), ("w[0]", "1"), ("q", "x"), ("j", "again"))
    assert (flow.ready(), flow.running()) == (("p",), ())
    assert say(flow, "p", "z").ready() == ("w[0]",)


def test_instances_are_part_of_the_key() -> None:
    flow = said_all(mapped(), ("planner", "x y"))
    keys = {flow.key(), flow.begin("worker[0]").key(), flow.begin("worker[1]").key()}
    keys |= {say(flow, "worker[0]", text).key() for text in "ab"}
    assert len(keys) == 5
    assert flow.key() == said_all(mapped(), ("planner", "x y")).key()


def test_a_step_of_an_instance_leaves_the_flow_as_it_was() -> None:
    flow = said_all(mapped(), ("planner", "x y"))
    before = flow.key()
    say(flow, "worker[0]")
    assert flow.key() == before
    assert flow.ready() == ("worker[0]", "worker[1]")


def test_a_mapped_agent_itself_neither_begins_nor_completes() -> None:
    flow = said_all(mapped(), ("planner", "x y"))
    with pytest.raises(RunError, match=r"'worker' cannot begin; ready are: \['worker\[0\]', 'worker\[1\]'\]"):
        flow.begin("worker")
    with pytest.raises(RunError, match=r"'worker' cannot complete; running are: \['worker\[0\]'\]"):
        flow.begin("worker[0]").complete("worker", Note(text="x"))
    with pytest.raises(RunError, match=r"'worker\[1\]' cannot complete"):
        flow.begin("worker[0]").complete("worker[1]", Note(text="x"))
    for name in ("worker[2]", "judge[0]", "nobody"):
        with pytest.raises(RunError, match="cannot begin"):
            flow.begin(name)
        with pytest.raises(RunError, match="Possible: 'judge', 'planner', 'worker'"):
            flow.messages(name)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (("start -> a map", "a -> j", "j -> done"), "has 'map', but 'start' sends no list"),
        (("start -> a", "a -> done map"), "has 'map', but 'done' is no agent"),
        (
            ("start -> a", "a -> w map", "start -> w", "w -> j", "j -> done"),
            "edge 'a -> w map' has 'map', but 'w' is reached by 'start -> w', too; keep one",
        ),
        (
            ("start -> a", "a -> w map", "w -> j", "j -> w when x loop 1", "j -> done when y"),
            "'w' is reached by 'j -> w when x loop 1', too",
        ),
        (
            ("start -> a", "a -> j", "j -> a loop 1 map", "j -> done"),
            "leads back; lead back to 'j', who makes the list",
        ),
        (("start -> a", "a -> w map", "w -> done"), "the output agent 'w' is mapped: it sends a list"),
        (
            ("start -> a", "a -> w map", "w -> j when x", "j -> done"),
            "edge 'w -> j when x' has a route, but 'w' is mapped: its list chooses none; remove 'when x'",
        ),
    ],
)
def test_a_map_that_cannot_be_is_refused(edges: tuple[str, ...], said: str) -> None:
    with pytest.raises(GraphError) as caught:
        plan_of(edges)
    assert said in str(caught.value)


def test_only_lists_are_handed_out_and_items_are_notes() -> None:
    spec, roles = team_of(MAPPED)
    roles["planner"].emits = "note"
    with pytest.raises(GraphError, match="role 'planner' emits 'note', which is no list; set its 'emits' to 'items'"):
        compile_team(spec, roles)
    spec, roles = team_of(MAPPED)
    roles["worker"].accepts = frozenset({"items"})
    roles["judge"].accepts = frozenset({"note"})
    with pytest.raises(GraphError) as caught:
        compile_team(spec, roles)
    assert "edge 'planner -> worker map' brings 'note', which role 'worker' does not accept" in str(caught.value)
    assert "edge 'worker -> judge' brings 'items', which role 'judge' does not accept" in str(caught.value)


LISTS = {
    "red\ngreen": ("red", "green"),
    "- red\n* green\n\n 3. blue\n4) grey\n": ("red", "green", "blue", "grey"),
    "1.5 metres\n-5": ("1.5 metres", "-5"),
    "none": (),
    "None.": (),
    "none of it": ("none of it",),
    "none\nred": ("none", "red"),
}


@pytest.mark.parametrize("text", LISTS)
def test_a_list_is_one_item_per_line(text: str) -> None:
    role = build_role("planner", RoleSpec(emits="items"))
    assert role.parse(text) == Items(items=LISTS[text])


def test_a_list_that_is_too_long_or_holds_what_is_not_legal_is_a_failure() -> None:
    role = build_role("planner", RoleSpec(emits="items", max_items=2, choices=("red", "green")))
    assert role.parse("red\ngreen") == Items(items=("red", "green"))
    long, wrong, empty = role.parse("red\ngreen\nred"), role.parse("red\nblue"), role.parse(" ")
    assert isinstance(long, Failure)
    assert long.cause == "has 3 items, at most 2 are allowed"
    assert isinstance(wrong, Failure)
    assert wrong.cause == "is none of the choices ['red', 'green']"
    assert isinstance(empty, Failure)


def test_a_role_is_told_how_to_write_a_list() -> None:
    role = build_role("planner", RoleSpec(emits="items", max_items=2, choices=("red", "green")))
    rule = role.rule()
    assert "one item per line, at most 2; 'none' if there is nothing" in rule
    assert "red\ngreen" in rule


def test_a_bound_on_items_needs_items() -> None:
    with pytest.raises(ConfigError, match="has max_items, but emits 'plan'; only 'items' has any"):
        build_role("planner", RoleSpec(type="planner", max_items=2))
