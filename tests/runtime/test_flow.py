"""The token-flow kernel, turn by turn. `play` fires whoever is ready first; texts are routes."""

import pickle
from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest

from mas.core.errors import RunError
from mas.core.messages import Action, Failure, Feedback, Note, Payload, Plan, Verdict, joint_action, read_joint
from mas.core.seeds import digest
from mas.core.team import TeamSpec
from mas.graph import TeamPlan as TeamPlan
from mas.graph import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.flow_state import HELD, NONE
from mas.testing.teams import plan_of

DPE = (
    "start -> planner",
    "planner -> executor",
    "executor -> verifier",
    "verifier -> done when accept",
    "verifier -> feedback when reject",
    "feedback -> executor loop 2",
)


def say(flow: Flow, agent: str, text: str = "x") -> Flow:
    return flow.begin(agent).complete(agent, flow.plan.roles[agent].parse(text))


def play(plan: TeamPlan, texts: Mapping[str, Sequence[str]] | None = None) -> tuple[list[str], Flow]:
    """Who fired, in order, and the finished flow; an agent says its texts one by one, then repeats the last."""
    flow, fired = Flow.start(plan), []
    while not flow.finished:
        agent = flow.ready()[0]
        said = (texts or {}).get(agent, ["x"])
        flow = say(flow, agent, said[min(flow.visits(agent), len(said) - 1)])
        fired.append(agent)
    return fired, flow


def contents(flow: Flow, agent: str) -> list[tuple[str, str]]:
    return [(message.sender, message.payload.content) for message in flow.messages(agent)]


def test_an_accepted_action_is_committed() -> None:
    fired, flow = play(plan_of(DPE, "executor"), {"executor": ["a"], "verifier": ["accept"]})
    assert fired == ["planner", "executor", "verifier"]
    assert flow.committed
    assert flow.action() is not None
    assert flow.action() == flow.outputs["executor"]


def test_a_rejected_action_is_revised_with_the_plan_still_in_hand() -> None:
    texts = {"planner": ["p"], "executor": ["a", "b"], "verifier": ["reject", "accept"], "feedback": ["f"]}
    fired, flow = play(plan_of(DPE, "executor"), texts)
    assert fired == ["planner", "executor", "verifier", "feedback", "executor", "verifier"]
    assert contents(flow, "executor") == [("planner", "p"), ("feedback", "f")]
    assert contents(flow, "verifier") == [("executor", "a"), ("executor", "b")]
    assert [payload.content for payload in flow.own("executor")] == ["a", "b"]
    assert flow.action() == flow.own("executor")[1]


def test_a_loop_that_is_exhausted_ends_the_turn_without_an_action() -> None:
    plan = plan_of(DPE, "executor")
    fired, flow = play(plan, {"verifier": ["reject"]})
    # loop 2: the first try and two revisions; the last feedback finds the loop used up.
    assert fired.count("executor") == fired.count("feedback") == 3 == plan.max_visits("executor")
    assert flow.finished
    assert not flow.committed
    assert flow.action() is None


def test_visits_count_what_was_completed() -> None:
    flow = Flow.start(plan_of(DPE, "executor"))
    assert flow.visits("planner") == 0
    flow = flow.begin("planner")
    assert (flow.visits("planner"), flow.ready(), flow.running()) == (0, (), ("planner",))
    flow = flow.complete("planner", Plan(text="p"))
    assert (flow.visits("planner"), flow.ready(), flow.running()) == (1, ("executor",), ())


def test_a_failure_of_the_output_agent_is_no_action() -> None:
    _, flow = play(plan_of(["start -> a", "a -> done"]), {"a": ["fail"]})
    assert flow.committed
    assert flow.action() is None
    assert isinstance(flow.outputs["a"], Failure)


def test_a_failure_without_a_route_takes_no_conditional_edge() -> None:
    plan = plan_of(["start -> a", "a -> b when go", "a -> done when stop", "b -> done"])
    fired, flow = play(plan, {"a": ["fail"]})
    assert fired == ["a"]
    assert not flow.committed


def test_a_failure_still_takes_edges_that_ask_nothing() -> None:
    fired, flow = play(plan_of(["start -> a", "a -> b", "b -> done"]), {"a": ["fail"]})
    assert fired == ["a", "b"]
    assert contents(flow, "b") == [("a", "?")]


def test_fan_out_makes_all_ready_and_fan_in_waits_for_all() -> None:
    plan = plan_of(["start -> a", "a -> b", "a -> c", "a -> d", "b -> e", "c -> e", "d -> e", "e -> done"])
    flow = say(Flow.start(plan), "a")
    assert flow.ready() == ("b", "c", "d")
    flow = say(say(flow, "d", "3"), "b", "1")
    assert flow.ready() == ("c",)
    flow = say(flow, "c", "2")
    assert flow.ready() == ("e",)
    assert contents(flow, "e") == [("d", "3"), ("b", "1"), ("c", "2")]
    assert say(flow, "e").committed


def test_a_join_fires_after_an_untaken_branch() -> None:
    plan = plan_of(["start -> a", "a -> b when left", "a -> c when right", "b -> b2", "b2 -> e", "c -> e", "e -> done"])
    fired, flow = play(plan, {"a": ["right"]})
    assert fired == ["a", "c", "e"]
    assert flow.committed


def test_a_join_whose_branches_are_all_dead_is_skipped_and_says_so() -> None:
    edges = ["start -> a", "start -> z", "a -> b when on", "a -> c when on", "a -> z when off"]
    edges += ["b -> d", "c -> d", "d -> z", "z -> done"]
    fired, flow = play(plan_of(edges), {"a": ["off"]})
    assert fired == ["a", "z"]
    assert flow.committed


def test_an_any_join_fires_once_at_the_first_live_token() -> None:
    plan = plan_of(["start -> a", "start -> b", "a -> c", "b -> c", "c -> done"], joins={"c": "any"})
    flow = say(Flow.start(plan), "b", "first")
    assert flow.ready() == ("a", "c")
    flow = say(flow, "c")
    assert not flow.finished
    flow = say(flow, "a", "late")
    assert flow.finished
    assert flow.visits("c") == 1


def test_an_any_join_whose_branches_are_all_dead_is_skipped() -> None:
    plan = plan_of(["start -> a", "a -> b when x", "a -> c when y", "b -> c", "c -> done"], joins={"c": "any"})
    fired, flow = play(plan, {"a": ["none"]})
    assert fired == ["a"]
    assert not flow.committed


def test_an_any_join_in_a_loop_waits_for_news_and_not_for_what_it_has() -> None:
    # The hint comes from outside the loop: it starts c once, but not again before b has spoken.
    edges = ["start -> hint", "hint -> c", "start -> b", "b -> c", "c -> b when again loop 1", "c -> done when on"]
    plan = plan_of(edges, joins={"c": "any"})
    fired, flow = play(plan, {"c": ["again", "on"]})
    assert fired == ["hint", "c", "b", "c"]
    assert flow.committed


def test_a_dead_token_in_a_later_iteration_does_not_start_an_any_join_that_has_old_messages() -> None:
    edges = ["start -> hint", "hint -> c", "start -> a", "a -> b1", "a -> b2", "b1 -> c when x", "b2 -> c"]
    edges += ["c -> a when again loop 1", "c -> done when on"]
    flow = Flow.start(plan_of(edges, joins={"c": "any"}))
    for agent, text in (
        ("hint", "x"),
        ("a", "x"),
        ("b1", "x"),
        ("b2", "x"),
        ("c", "again"),
        ("a", "x"),
        ("b1", "none"),
    ):
        flow = say(flow, agent, text)
    assert flow.ready() == ("b2",)
    assert say(flow, "b2").ready() == ("c",)


def test_a_message_from_outside_a_loop_still_counts_in_a_later_iteration() -> None:
    edges = ["start -> hint", "hint -> c", "start -> a", "a -> c when x", "a -> b", "b -> d", "c -> d"]
    edges += ["d -> a when again loop 1", "d -> done when on"]
    fired, _ = play(plan_of(edges), {"a": ["x", "none"], "d": ["again", "on"]})
    assert fired == ["hint", "a", "c", "b", "d", "a", "c", "b", "d"]


def test_a_live_exit_of_an_earlier_iteration_outlives_a_dead_one_of_a_later() -> None:
    edges = ["start -> a", "a -> z when tell", "a -> b", "b -> a when again loop 1", "b -> z when on", "z -> done"]
    fired, flow = play(plan_of(edges), {"a": ["tell", "none"], "b": ["again"]})
    assert fired == ["a", "b", "a", "b", "z"]
    assert contents(flow, "z") == [("a", "tell")]


def test_a_new_iteration_takes_a_held_death_back() -> None:
    plan = plan_of(
        ["start -> a", "a -> z when tell", "a -> b", "b -> a when again loop 1", "b -> z when on", "z -> done"]
    )
    flow = say(say(Flow.start(plan), "a", "none"), "b", "again")
    assert [flow.tokens[edge.index] for edge in plan.edges_in["z"]] == [NONE, NONE]
    flow = say(flow, "a", "none")
    assert [flow.tokens[edge.index] for edge in plan.edges_in["z"]] == [HELD, NONE]


def test_two_loops_over_the_same_agents_do_not_renew_each_other() -> None:
    edges = ["start -> a", "a -> b", "b -> a when small loop 2", "b -> a when large loop 3", "b -> done when on"]
    fired, flow = play(plan_of(edges), {"b": ["small", "large"] * 4})
    # The first try, then small, large, small, large; the third 'small' finds its bound used up.
    assert fired.count("a") == 5
    assert not flow.committed


def test_a_late_result_of_an_iteration_that_is_over_is_recorded_and_sent_nowhere() -> None:
    edges = [
        "start -> fast",
        "start -> slow",
        "slow -> x",
        "fast -> s",
        "x -> s",
        "s -> slow when again loop 1",
        "s -> done when on",
    ]
    flow = Flow.start(plan_of(edges, joins={"s": "any"}))
    flow = say(flow.begin("slow"), "fast")
    flow = say(flow, "s", "again")
    assert flow.running() == ("slow",)
    assert flow.ready() == ()
    flow = flow.complete("slow", Note(text="stale"))
    assert flow.ready() == ("slow",)
    assert flow.messages("x") == ()
    assert [payload.content for payload in flow.own("slow")] == ["stale"]
    flow = say(flow, "slow", "fresh")
    assert contents(flow, "x") == [("slow", "fresh")]


def test_a_join_outside_a_loop_does_not_see_the_loops_exit_die_too_early() -> None:
    # z waits for the exit of the loop although its other input has long been there.
    edges = [
        "start -> side",
        "side -> z",
        "start -> a",
        "a -> b",
        "b -> a when again loop 2",
        "b -> z when on",
        "z -> done",
    ]
    fired, flow = play(plan_of(edges), {"b": ["again", "again", "on"]})
    assert fired == ["side", "a", "b", "a", "b", "a", "b", "z"]
    assert contents(flow, "z") == [("side", "x"), ("b", "on")]


def test_a_join_outside_an_exhausted_loop_fires_with_what_it_has() -> None:
    edges = [
        "start -> side",
        "side -> z",
        "start -> a",
        "a -> b",
        "b -> a when again loop 2",
        "b -> z when on",
        "z -> done",
    ]
    fired, flow = play(plan_of(edges), {"b": ["again"]})
    assert fired == ["side", "a", "b", "a", "b", "a", "b", "z"]
    assert contents(flow, "z") == [("side", "x")]


def test_deaths_on_the_exit_of_an_inner_loop_are_believed_before_those_of_the_outer() -> None:
    # b says neither 'again' nor 'yes': its exit to c is held, as is the exit a -> z of the outer loop. Only the inner
    # one may be believed: c then fires from a alone and takes the outer loop, in which a stops, live, to z.
    edges = ["start -> y", "y -> z", "start -> a", "a -> b", "a -> z when stop", "a -> c", "b -> b when again loop 1"]
    edges += ["b -> c when yes", "c -> a when more loop 1", "c -> done when on", "z -> done"]
    fired, flow = play(plan_of(edges), {"a": ["go", "stop"], "b": ["no"], "c": ["more", "on"]})
    assert fired == ["y", "a", "b", "c", "a", "z", "b", "c"]
    assert contents(flow, "z") == [("y", "x"), ("a", "stop")]


def test_where_two_loops_leave_each_other_the_death_that_starts_one_is_believed_first() -> None:
    # b and c hang from a, and each leads back to it. a takes neither edge; b begins all the same, by its other edge,
    # and sends a around again, which then takes the edge to c.
    edges = ["start -> a", "start -> b", "a -> b when x", "a -> c when y", "c -> a loop 1", "b -> a when again loop 1"]
    fired, flow = play(plan_of([*edges, "b -> done when on", "c -> done when on"]), {"a": ["no", "y"], "b": ["again"]})
    assert fired == ["a", "b", "a", "c", "a", "c", "b"]
    assert contents(flow, "c") == [("a", "y"), ("a", "y")]


def test_a_death_waits_for_a_loop_that_leads_to_the_end_of_the_loop_that_its_edge_leaves() -> None:
    # a takes neither edge, so that b is left out; c begins by its other edge and leads to b, which leads back to a.
    edges = ["start -> a", "start -> c", "a -> b when x", "a -> z when y", "b -> c when on", "c -> b when again loop 1"]
    edges += ["b -> a when back loop 1", "c -> done when on", "z -> done"]
    fired, flow = play(plan_of(edges), {"a": ["no", "y"], "b": ["back"], "c": ["again", "on"]})
    assert fired == ["a", "c", "b", "a", "b", "z", "c"]
    assert contents(flow, "z") == [("a", "y")]


@pytest.mark.parametrize("loops", [*permutations(["c -> a when again loop 1", "c -> b when again loop 1"])])
def test_of_two_loops_that_one_output_takes_the_inner_one_counts_whatever_their_order(loops: tuple[str, ...]) -> None:
    # In the second iteration a does not take its edge to b, which begins by the inner loop's alone.
    edges = ["start -> a", "a -> b when x", "b -> c", *loops, "c -> done when on"]
    fired, flow = play(plan_of(edges), {"a": ["x", "no"], "c": ["again", "on"]})
    assert fired == ["a", "b", "c", "a", "b", "c"]
    assert flow.committed
    assert contents(flow, "b") == [("a", "x"), ("c", "again")]


def test_the_bound_of_an_inner_loop_starts_anew_in_each_outer_iteration() -> None:
    edges = [
        "start -> a",
        "a -> b",
        "b -> b when again loop 2",
        "b -> c when on",
        "c -> a when again loop 1",
        "c -> done when on",
    ]
    fired, _ = play(plan_of(edges), {"b": ["again", "again", "on"] * 2, "c": ["again", "on"]})
    assert fired == ["a", "b", "b", "b", "c", "a", "b", "b", "b", "c"]


def test_by_default_the_turn_ends_when_nothing_can_fire_any_more() -> None:
    plan = plan_of(["start -> a", "a -> done", "a -> b", "b -> done"])
    fired, flow = play(plan)
    assert fired == ["a", "b"]
    assert flow.committed


def test_with_any_join_at_done_the_turn_ends_at_the_first_token() -> None:
    flow = say(
        Flow.start(plan_of(["start -> a", "start -> b", "a -> done", "b -> done"], joins={"done": "any"})), "a", "1"
    )
    assert (flow.finished, flow.committed, flow.ready()) == (True, True, ())
    with pytest.raises(RunError):
        flow.begin("b")


def test_what_completes_after_the_end_changes_nothing() -> None:
    plan = plan_of(["start -> a", "start -> b", "a -> done", "b -> done"], joins={"done": "any"})
    flow = say(Flow.start(plan).begin("a"), "b")
    assert flow.complete("a", Note(text="late")) is flow
    assert flow.action() is None


def test_forks_are_independent_and_leave_the_parent_as_it_was() -> None:
    plan = plan_of(DPE, "executor")
    parent = say(say(Flow.start(plan), "planner"), "executor").begin("verifier")
    before = pickle.dumps((parent.tokens, parent.status, parent.uses, parent.said, parent.heard)), parent.key()
    accepted = parent.complete("verifier", plan.roles["verifier"].parse("accept"))
    rejected = parent.complete("verifier", plan.roles["verifier"].parse("reject"))
    assert accepted.committed
    assert rejected.ready() == ("feedback",)
    say(rejected, "feedback")
    assert (
        pickle.dumps((parent.tokens, parent.status, parent.uses, parent.said, parent.heard)),
        parent.key(),
    ) == before
    assert len({parent.key(), accepted.key(), rejected.key()}) == 3


def test_a_fork_shares_what_it_did_not_change() -> None:
    flow = say(say(Flow.start(plan_of(DPE, "executor")), "planner"), "executor")
    after = say(flow, "verifier", "accept")
    assert after.said[0] is flow.said[0]
    assert after.heard[1] is flow.heard[1]


def test_equal_content_gives_equal_keys_and_other_content_others() -> None:
    plan = plan_of(DPE, "executor")
    one, same = (say(Flow.start(plan_of(DPE, "executor")), "planner", "p") for _ in range(2))
    assert one.key() == same.key()
    assert one.key() != say(Flow.start(plan), "planner", "q").key()
    assert one.key() != one.begin("executor").key()
    assert (
        one.key()
        != say(Flow.start(plan_of((*DPE[:-1], "feedback -> executor loop 3"), "executor")), "planner", "p").key()
    )


def test_the_kind_of_a_message_is_part_of_the_key() -> None:
    flow = Flow.start(plan_of(["start -> a", "a -> done"])).begin("a")
    keys = {flow.complete("a", payload(text="x")).key() for payload in (Note, Plan, Action, Feedback)}
    verdicts = {flow.complete("a", Verdict(text="x", accept=accept)).key() for accept in (True, False)}
    assert len(keys | verdicts) == 6


def test_the_order_of_arrival_is_part_of_the_key() -> None:
    flow = Flow.start(plan_of(["start -> a", "start -> b", "a -> c", "b -> c", "c -> done"]))
    assert say(say(flow, "a"), "b").key() != say(say(flow, "b"), "a").key()


def test_a_flow_survives_pickling() -> None:
    flow = say(Flow.start(plan_of(DPE, "executor")), "planner")
    copy = pickle.loads(pickle.dumps(flow))
    assert copy.key() == flow.key()
    assert say(copy, "executor").ready() == ("verifier",)


def test_beginning_what_is_not_ready_names_what_is() -> None:
    flow = Flow.start(plan_of(DPE, "executor"))
    for agent in ("executor", "done", "nobody"):
        with pytest.raises(RunError, match=rf"agent '{agent}' cannot begin; ready are: \['planner'\]"):
            flow.begin(agent)
    with pytest.raises(RunError, match="cannot begin"):
        flow.begin("planner").begin("planner")


def test_completing_what_has_not_begun_names_what_has() -> None:
    flow = Flow.start(plan_of(DPE, "executor"))
    with pytest.raises(RunError, match=r"agent 'planner' cannot complete; running are: \[\]"):
        flow.complete("planner", Plan(text="p"))
    with pytest.raises(RunError, match=r"running are: \['planner'\]"):
        flow.begin("planner").complete("executor", Action(text="a"))


@pytest.mark.parametrize(("verdict", "actor"), [("accept", "executor"), ("reject", "spare")])
def test_the_action_is_that_of_the_first_output_agent_that_spoke(verdict: str, actor: str) -> None:
    edges = ["start -> judge", "judge -> executor when accept", "judge -> spare when reject"]
    spec = TeamSpec.model_validate(
        {
            "name": "either",
            "roles": {"judge": {"type": "verifier"}, "executor": {"type": "executor"}, "spare": {"type": "executor"}},
            "edges": [*edges, "executor -> done", "spare -> done"],
            "output": "executor",
            "else_output": ["spare"],
        }
    )
    fired, flow = play(compile_team(spec, build_roles(spec)), {"judge": [verdict], "executor": ["a"], "spare": ["b"]})
    assert fired == ["judge", actor]
    assert flow.action() == Action(text={"executor": "a", "spare": "b"}[actor])


ABOVE_AND_BELOW = {
    "name": "joint",
    "roles": {"left": {"type": "agent", "emits": "action"}, "right": {"type": "executor"}},
    "edges": ["start -> left", "start -> right", "left -> done", "right -> done"],
    "output": "right",
    "joint": ["left", "right"],
}
NOTHING = Failure(cause="nonsense", text="?")


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ({"left": Action(text="a"), "right": Action(text="b")}, '{"left":"a","right":"b"}'),
        ({"left": Action(text='"\ud800'), "right": NOTHING}, '{"left":"\\"?"}'),
        ({"left": NOTHING, "right": NOTHING}, None),
    ],
)
def test_the_action_of_members_who_act_together_leaves_out_what_did_not_parse(
    said: dict[str, Payload], action: str | None
) -> None:
    spec = TeamSpec.model_validate(ABOVE_AND_BELOW)
    flow = Flow.start(compile_team(spec, build_roles(spec)))
    for agent, payload in said.items():
        assert flow.action() is None, "the turn is not over"
        flow = flow.begin(agent).complete(agent, payload)
    assert flow.action() == (None if action is None else Action(text=action))
    assert action is None or read_joint(action, ("left", "right")) is not None


@pytest.mark.parametrize(("last", "action"), [(Action(text="b"), Action(text="b")), (NOTHING, None)])
def test_the_action_of_a_seat_is_the_last_that_its_agent_said(last: Payload, action: Action | None) -> None:
    edges = ["start -> judge", "judge -> one", "one -> judge loop 1", "one -> done", "start -> two", "two -> done"]
    spec = TeamSpec.model_validate(
        {
            "name": "seated",
            "roles": {"judge": {"type": "verifier"}, "one": {"type": "executor"}, "two": {"type": "executor"}},
            "seats": {"first": "one", "second": "two"},
            "edges": edges,
            "output": "one",
        }
    )
    flow = Flow.start(compile_team(spec, build_roles(spec)), ("first",))
    for payload in (Action(text="a"), last):
        flow = say(flow, "judge", "accept")
        assert flow.seat_action("first") is None, "the turn is not over"
        flow = flow.begin("one").complete("one", payload)
    assert flow.seat_action("first") == action


def test_a_joint_action_is_read_only_from_an_object_of_texts_by_known_agents() -> None:
    assert read_joint(joint_action({"left": "a"}), ("left", "right")) == {"left": "a"}
    for action in ("", "a", "[]", "{}", '{"left": 1}', '{"other": "a"}', '{"left": "a"', "[" * 5000, "\ud800"):
        assert read_joint(action, ("left", "right")) is None
    assert joint_action({}) == ""


def test_a_team_without_joint_members_and_experiences_has_the_digest_it_had_before_there_were_any() -> None:
    spec = TeamSpec.model_validate(ABOVE_AND_BELOW)
    alone = spec.model_copy(update={"joint": ()})
    plan = compile_team(alone, build_roles(alone))
    of_roles = {"experiences", "tools", "a2a", "privileges"}
    later = {"joint": True, "seats": True, "text": True, "tools": True, "roles": {"__all__": of_roles}}
    before = alone.model_dump_json(exclude=later)
    assert plan.digest == digest("plan", before)
    assert plan.digest != compile_team(spec, build_roles(spec)).digest
