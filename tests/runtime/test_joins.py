"""Joins of k, of a quorum, and with a time limit: when they fire, and what they make of branches that died."""

import pytest
from steps import contents, said_all, say

from mas.core.errors import GraphError, RunError
from mas.core.policy import JoinSpec
from mas.core.team import TeamSpec
from mas.graph import TeamPlan, load_team
from mas.runtime.flow import Flow
from mas.testing.teams import plan_of, team_of

OPEN = ("start -> a", "start -> b", "start -> c", "a -> j", "b -> j", "c -> j", "j -> done")
"""Three branches that all speak to the judge."""
CHOSEN = ("start -> a", "start -> b", "start -> c", *(f"{n} -> j when go" for n in "abc"), "j -> done")
"""The same, where only `go` takes a branch there."""


def judged(join: object, edges: tuple[str, ...] = OPEN) -> TeamPlan:
    return plan_of(edges, output="j", joins={"j": join})


def test_a_join_of_two_fires_at_the_second_branch_and_once() -> None:
    flow = said_all(judged(2), ("c", "first"))
    assert flow.ready() == ("a", "b")
    flow = say(flow, "a", "second")
    assert flow.ready() == ("b", "j")
    flow = say(say(flow, "j"), "b", "late")
    assert flow.finished
    assert flow.visits("j") == 1
    assert contents(flow, "j") == [("c", "first"), ("a", "second"), ("b", "late")]


def test_a_join_of_one_is_any() -> None:
    assert said_all(judged(1), ("b", "x")).ready() == said_all(judged("any"), ("b", "x")).ready() == ("a", "c", "j")


def test_a_number_that_cannot_be_reached_any_more_fires_with_what_has_come() -> None:
    plan = judged(2, CHOSEN)
    flow = said_all(plan, ("a", "go"), ("b", "none"))
    assert flow.ready() == ("c",)
    flow = say(flow, "c", "none")
    assert flow.ready() == ("j",)
    assert contents(flow, "j") == [("a", "go")]


def test_a_number_that_cannot_be_reached_any_more_is_skipped_at_once_where_the_team_says_so() -> None:
    flow = said_all(judged({"need": 2, "unmet": "skip"}, CHOSEN), ("a", "none"), ("b", "none"))
    assert flow.waiting_joins() == ()
    flow = say(flow, "c", "go")
    assert (flow.finished, flow.committed, flow.visits("j")) == (True, False, 0)
    assert contents(flow, "j") == [("c", "go")]


def test_a_number_that_can_just_be_reached_is_waited_for() -> None:
    flow = said_all(judged({"need": 2, "unmet": "skip"}, CHOSEN), ("a", "go"), ("b", "none"))
    assert flow.ready() == ("c",)
    assert say(flow, "c", "go").ready() == ("j",)


def test_nothing_live_never_fires() -> None:
    for join in (2, "quorum", "all", "any", {"need": 2, "unmet": "skip"}):
        flow = said_all(judged(join, CHOSEN), ("a", "none"), ("b", "none"), ("c", "none"))
        assert (flow.finished, flow.committed) == (True, False)


def test_edges_of_one_source_are_one_branch() -> None:
    edges = ("start -> a", "start -> b", "a -> j when x", "a -> j when y", "b -> j", "j -> done")
    flow = said_all(judged(2, edges), ("b", "x"))
    assert flow.ready() == ("a",)
    assert say(flow, "a", "y").ready() == ("j",)
    # The second edge of a is undecided while the first is, so it must not count: 1 live of 2 is no majority.
    assert said_all(judged("quorum", edges), ("b", "x")).ready() == ("a",)


def test_a_quorum_is_more_than_half_of_the_branches() -> None:
    flow = said_all(judged("quorum"), ("a", "1"))
    assert flow.ready() == ("b", "c")
    assert say(flow, "c", "2").ready() == ("b", "j")


def test_branches_that_died_are_no_part_of_a_quorum() -> None:
    # One live of three, one dead: 1 of 2 is no majority. Two dead: 1 of 1 is.
    flow = said_all(judged("quorum", CHOSEN), ("a", "go"), ("b", "none"))
    assert flow.ready() == ("c",)
    assert say(flow, "c", "none").ready() == ("j",)


def test_done_with_a_number_ends_the_turn_at_that_branch() -> None:
    edges = ("start -> a", "start -> b", "start -> c", "a -> done", "b -> done", "c -> done")
    flow = said_all(plan_of(edges, joins={"done": 2}), ("a", "x"))
    assert not flow.finished
    flow = say(flow, "c")
    assert (flow.finished, flow.committed, flow.ready()) == (True, True, ())


@pytest.mark.parametrize(("join", "committed"), [(2, True), ({"need": 2, "unmet": "skip"}, False), ("quorum", True)])
def test_done_with_too_few_branches_commits_what_its_join_says(join: object, committed: bool) -> None:
    edges = ("start -> a", "start -> b", "a -> done when go", "b -> done when go")
    flow = said_all(plan_of(edges, joins={"done": join}), ("a", "go"), ("b", "none"))
    assert (flow.finished, flow.committed) == (True, committed)


def test_a_join_of_two_counts_what_it_kept_but_waits_for_something_new() -> None:
    edges = ["start -> hint", "start -> tip", "hint -> c", "tip -> c", "start -> b", "b -> c"]
    edges += ["c -> b when again loop 1", "c -> done when on"]
    plan = plan_of(edges, output="c", joins={"c": 2})
    flow = said_all(plan, ("hint", "x"), ("tip", "x"), ("b", "x"), ("c", "again"))
    assert flow.ready() == ("b",)
    assert say(flow, "b").ready() == ("c",)


def test_a_join_waits_from_its_first_live_branch_until_it_is_decided() -> None:
    plan = judged({"need": "all", "timeout_s": 5})
    flow = Flow.start(plan)
    assert (flow.waiting_joins(), dict(plan.timeouts)) == ((), {"j": 5.0})
    flow = say(flow, "a")
    assert flow.waiting_joins() == ("j",)
    flow = say(say(flow, "b"), "c")
    assert (flow.waiting_joins(), flow.ready()) == ((), ("j",))


def test_an_expired_join_fires_with_what_has_come_and_never_again() -> None:
    flow = said_all(judged({"timeout_s": 5}), ("b", "quick")).expire("j")
    assert flow.ready() == ("a", "c", "j")
    flow = say(say(say(flow, "j"), "a"), "c")
    assert (flow.finished, flow.committed, flow.visits("j")) == (True, True, 1)


@pytest.mark.parametrize(("unmet", "ready"), [("fire", ("b", "c", "j")), ("skip", ("b", "c"))])
def test_an_expired_join_that_lacks_branches_does_what_unmet_says(unmet: str, ready: tuple[str, ...]) -> None:
    flow = said_all(judged({"need": 2, "unmet": unmet, "timeout_s": 5}), ("a", "x")).expire("j")
    assert flow.ready() == ready
    assert flow.waiting_joins() == ()


def test_a_join_that_has_nothing_dies_when_it_expires() -> None:
    flow = Flow.start(judged({"timeout_s": 5})).expire("j")
    flow = say(say(say(flow, "a"), "b"), "c")
    assert (flow.finished, flow.committed, flow.visits("j")) == (True, False, 0)


def test_a_time_limit_that_comes_late_changes_nothing() -> None:
    flow = said_all(judged({"timeout_s": 5}), ("a", "x"), ("b", "x"), ("c", "x"))
    assert flow.expire("j") == flow
    flow = say(flow, "j")
    assert flow.expire("j") is flow


def test_an_expired_join_in_a_loop_waits_again_in_the_next_iteration() -> None:
    edges = ("start -> s", "s -> a", "s -> b", "a -> j", "b -> j", "j -> s when again loop 1", "j -> done when on")
    flow = said_all(plan_of(edges, joins={"j": {"timeout_s": 1}}), ("s", "x"), ("a", "x")).expire("j")
    flow = say(say(flow, "j", "again"), "s")
    assert flow.visits("j") == 1
    assert say(flow, "a").waiting_joins() == ("j",)


def test_the_end_of_a_turn_may_have_a_time_limit() -> None:
    edges = ("start -> a", "start -> b", "a -> done", "b -> done")
    flow = said_all(plan_of(edges, joins={"done": {"timeout_s": 5}}), ("a", "x"))
    assert flow.waiting_joins() == ("done",)
    flow = flow.expire("done")
    assert (flow.finished, flow.committed, flow.ready(), flow.waiting_joins()) == (True, True, (), ())


def test_expiring_a_join_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(RunError, match=r"no join 'k' can expire. .*'done', 'j'"):
        Flow.start(judged({"timeout_s": 5})).expire("k")


def test_joins_are_written_short_where_they_can_be() -> None:
    spec, _ = team_of(OPEN, "j", {"j": {"need": 2}, "done": "all"})
    assert spec.model_dump(mode="json")["joins"] == {"j": 2, "done": "all"}
    long = {"need": 2, "unmet": "skip", "timeout_s": 1.5}
    spec, _ = team_of(OPEN, "j", {"j": long})
    assert spec.model_dump(mode="json")["joins"] == {"j": long}
    assert TeamSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert spec.join("a") == JoinSpec(need="all")


@pytest.mark.parametrize(
    ("join", "said"),
    [
        ({"need": 0}, "'joins.j.need': need is 0; possible: 'all', 'any', 'quorum', or a number of branches from 1"),
        ("most", "'joins.j.need': need is 'most'; possible"),
        (True, "'joins.j.need': need is True; possible"),
        ({"ned": 2}, "unknown key 'joins.j.ned' (value 2). Did you mean 'need'"),
        ({"timeout_s": 0}, "'joins.j.timeout_s' is 0, but: input should be greater than 0"),
        ({"timeout_s": -1.5}, "'joins.j.timeout_s' is -1.5, but: input should be greater than 0"),
        ({"timeout_s": float("inf")}, "'joins.j.timeout_s' is inf, but: input should be a finite number"),
        ({"need": "any", "unmet": "skip"}, "unmet: skip has no effect beside need: any"),
        ({"need": 2, "unmet": "wait"}, "'joins.j.unmet' is 'wait', but: input should be 'fire' or 'skip'"),
    ],
)
def test_a_join_that_means_nothing_is_refused(join: object, said: str) -> None:
    content = {"name": "t", "roles": {"j": {}}, "edges": list(OPEN), "output": "j", "joins": {"j": join}}
    with pytest.raises(GraphError) as caught:
        load_team(content)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("joins", "said"),
    [
        ({"j": 4}, "the join of 'j' needs 4 branches, but there are 3 (a, b, c); lower 'need'"),
        ({"done": 2}, "the join of 'done' needs 2 branches, but there is 1 (j); lower 'need'"),
        (
            {"a": {"timeout_s": 2}},
            "the join of 'a' has timeout_s: 2, but waits for nothing: its branches are 1 (start)",
        ),
        ({"k": 2}, "'joins' names the unknown agent 'k'."),
    ],
)
def test_a_join_that_can_never_be_met_is_refused(joins: dict[str, object], said: str) -> None:
    with pytest.raises(GraphError) as caught:
        plan_of(OPEN, "j", joins)
    assert said in str(caught.value)
