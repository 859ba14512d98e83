"""A team turn in time: nobody waits for whom he does not need, and the result does not depend on who was quick."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flow_properties import ROUTES, plans
from virtual_time import play

from mas.core.environment import Observation
from mas.core.errors import AgentFailed, EngineError, Halted
from mas.core.messages import Failure, Note, Payload
from mas.core.naming import agent_of
from mas.core.policy import Policy
from mas.core.seeds import derive_seed
from mas.graph import TeamPlan, compile_team
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, Undo, play_turn
from mas.runtime.timing import in_waves, needs_steps
from mas.scenarios.relay import RelayEnvironment
from mas.testing.teams import plan_of, team_of

Takes = Callable[[DecisionPoint], float]
"""Seconds that an agent takes."""

TWO_PATHS = ("start -> slow", "start -> quick", "quick -> next", "slow -> judge", "next -> judge", "judge -> done")


def with_policies(edges: Sequence[str], policies: Mapping[str, Policy]) -> TeamPlan:
    spec, roles = team_of(edges)
    return compile_team(spec.model_copy(update={"policies": dict(policies)}), roles)


class Script:
    """Agents that take time and say texts; notes when each began, ended, and was cancelled."""

    def __init__(self, takes: Takes, says: Mapping[tuple[str, int], str] | None = None) -> None:
        self.takes, self.says = takes, dict(says or {})
        self.began: dict[str, float] = {}
        self.heard: dict[tuple[str, int], list[str]] = {}
        self.cancelled: list[str] = []

    async def decide(self, point: DecisionPoint) -> Payload:
        agent, visit, loop = point.agent, point.flow.visits(point.agent), asyncio.get_running_loop()
        self.began[agent] = loop.time()
        self.heard[agent, visit] = [f"{m.sender} {m.payload.content}" for m in point.view.messages]
        try:
            await asyncio.sleep(self.takes(point))
        except asyncio.CancelledError:
            self.cancelled.append(agent)
            raise
        text = self.says.get((agent, visit), f"{agent}{visit}")
        if text == "broken":
            raise EngineError("cannot")
        return point.flow.plan.roles[agent_of(agent)].parse(text)

    async def turn(self, plan: TeamPlan, *, in_step: bool = False, undo: Undo | None = None) -> Flow:
        views = dict.fromkeys(plan.agents, Observation(fields={}))
        return await play_turn(Flow.start(plan), RelayEnvironment(), views, 3, self.decide, in_step=in_step, undo=undo)


def seconds(**takes: float) -> Takes:
    return lambda point: takes.get(point.agent, 1.0)


def said(flow: Flow) -> dict[str, list[str]]:
    return {agent: [payload.content for payload in flow.own(agent)] for agent in flow.plan.agents}


def test_a_slow_sibling_delays_only_who_waits_for_it() -> None:
    script = Script(seconds(slow=100.0))
    play(script.turn(plan_of(TWO_PATHS)))
    assert script.began == {"slow": 0.0, "quick": 0.0, "next": 1.0, "judge": 100.0}


def test_in_step_the_next_wave_waits_for_all() -> None:
    script = Script(seconds(slow=100.0))
    play(script.turn(plan_of(TWO_PATHS), in_step=True))
    assert script.began["next"] == 100.0


def test_what_is_heard_does_not_depend_on_who_was_quick() -> None:
    """In waves `slow` speaks before `next`; here it comes after it, and is joined before it."""
    late, early = Script(seconds(slow=100.0)), Script(seconds(slow=0.5))
    flows = [play(script.turn(plan_of(TWO_PATHS))) for script in (late, early)]
    assert late.heard == early.heard
    assert late.heard["judge", 0] == ["slow slow0", "next next0"]
    assert flows[0].heard == flows[1].heard


def test_with_any_the_first_arrival_decides_and_the_other_is_cancelled_at_the_end() -> None:
    edges = ("start -> a", "start -> b", "a -> judge", "b -> judge", "judge -> done")
    for slow, quick in (("a", "b"), ("b", "a")):
        script = Script(seconds(**{slow: 100.0}))
        flow = play(script.turn(plan_of(edges, joins={"judge": "any", "done": "any"})))
        assert script.heard["judge", 0] == [f"{quick} {quick}0"]
        assert script.cancelled == [slow]
        assert said(flow)[slow] == []


def test_a_join_whose_time_is_over_just_when_nobody_is_at_work_stays_so() -> None:
    """`a` speaks at 0.5 s, so `j` waits until 1.5 s; `s` is the only one at work, and speaks in that moment. Then `c`
    and `d` are quicker than `j` and `b`: the order of waves must not forget that `j` waits no more."""
    edges = ("start -> a", "start -> s", "s -> b", "s -> c", "c -> d", "a -> j", "b -> j", "j -> done", "d -> done")
    script = Script(seconds(a=0.5, s=1.4999999, c=1.0, d=0.5, j=2.0, b=5.0))
    flow = play(script.turn(plan_of(edges, "j", joins={"j": {"timeout_s": 1.0}})))
    assert script.heard["j", 0] == ["a a0"]
    assert said(flow) == {"a": ["a0"], "s": ["s0"], "b": ["b0"], "c": ["c0"], "d": ["d0"], "j": ["j0"]}


def test_outputs_of_one_moment_join_in_declared_order() -> None:
    edges = ("start -> b", "start -> a", "b -> judge", "a -> judge", "judge -> done")
    script = Script(seconds())
    play(script.turn(plan_of(edges, joins={"judge": "any"})))
    assert script.heard["judge", 0] == ["b b0", "a a0"]


def test_who_is_left_behind_by_an_agent_of_its_wave_still_joins_first() -> None:
    """`quick` speaks when `late`, of the same wave, can begin: nobody is at work, and yet a wave is not complete."""
    edges = ("start -> a", "a -> late", "start -> b", "b -> quick", "late -> judge", "quick -> judge", "judge -> done")
    script = Script(seconds(a=2.0, b=1.0, quick=1.0, late=1.0))
    play(script.turn(plan_of(edges)))
    assert script.heard["judge", 0] == ["late late0", "quick quick0"]


@given(plan=plans(), data=st.data())
@settings(deadline=None)
def test_with_all_joins_a_turn_is_equal_for_any_timing(plan: TeamPlan, data: st.DataObject) -> None:
    spec = plan.spec.model_copy(update={"joins": {}})
    plan = compile_team(spec, {plan.roles[agent].name: plan.roles[agent] for agent in plan.agents})
    texts = st.sampled_from([*ROUTES, "none", "fail"])
    says = {(agent, visit): data.draw(texts) for agent in plan.agents for visit in range(plan.max_visits(agent))}
    wanted = play(Script(seconds(), says).turn(plan, in_step=True))
    seed = data.draw(st.integers(0, 10**6))
    script = Script(lambda point: derive_seed(seed, point.agent, point.flow.visits(point.agent)) % 10 * 1.0, says)
    flow = play(script.turn(plan))
    assert (flow.said, flow.heard, flow.key()) == (wanted.said, wanted.heard, wanted.key())
    assert flow.action() == wanted.action()


@given(plan=plans(), data=st.data())
@settings(deadline=None)
def test_with_any_joins_every_turn_ends_and_leaves_nobody_at_work(plan: TeamPlan, data: st.DataObject) -> None:
    texts, times = st.sampled_from([*ROUTES, "none", "fail"]), st.integers(0, 9)
    script = Script(lambda point: float(data.draw(times)))
    script.says = {(agent, visit): data.draw(texts) for agent in plan.agents for visit in range(plan.max_visits(agent))}
    assert play(script.turn(plan)).finished


def test_an_order_in_which_somebody_at_work_would_not_have_begun_is_none() -> None:
    """A turn that took it would wait for ever for whoever it does not know to be at work."""
    start = Flow.start(plan_of(TWO_PATHS))
    begun = {("quick", 0): (), ("slow", 0): ()}
    said = {"quick": [Note(text="now")]}
    replayed = in_waves(start, said, begun)
    assert replayed is not None
    assert replayed[0].running() == ("slow",)
    assert in_waves(start, said, begun | {("next", 7): ()}) is None


def test_a_loop_that_is_left_while_it_iterates_is_played_in_step() -> None:
    """`out` hears `a` once or twice before `slow` has spoken: timing would decide."""
    edges = ("start -> a", "start -> slow", "a -> a loop 1", "a -> out", "slow -> out", "out -> done")
    closed = ("start -> a", "start -> slow", "a -> a when x loop 1", "a -> out when y", "slow -> out", "out -> done")
    assert needs_steps(plan_of(edges))
    assert not needs_steps(plan_of(closed))
    assert not needs_steps(plan_of(edges, joins={"out": "any"}))


def test_the_first_failure_cancels_the_turn_and_names_agent_and_cause() -> None:
    script = Script(seconds(slow=100.0), {("quick", 0): "broken"})
    with pytest.raises(AgentFailed, match="agent 'quick' failed in turn 3: EngineError: cannot") as caught:
        play(script.turn(plan_of(TWO_PATHS)))
    assert isinstance(caught.value.__cause__, EngineError)
    assert script.cancelled == ["slow"]


def test_an_isolated_failure_is_an_output_and_its_siblings_go_on() -> None:
    script = Script(seconds(), {("quick", 0): "broken"})
    plan = with_policies(TWO_PATHS, {"quick": Policy(on_failure="isolate")})
    flow = play(script.turn(plan))
    (output,) = flow.own("quick")
    assert output == Failure(text="", cause="EngineError: cannot")
    assert script.heard["next", 0] == ["quick ?"]
    assert flow.committed


def test_a_halt_is_no_failure_of_the_agent() -> None:
    async def decide(point: DecisionPoint) -> Payload:
        raise Halted("stop")

    script = Script(seconds())
    script.decide = decide
    with pytest.raises(Halted, match="stop"):
        play(script.turn(with_policies(TWO_PATHS, {"quick": Policy(on_failure="isolate")})))


def test_what_was_said_is_compensated_in_reverse_order() -> None:
    """`b` has no compensation, and `d` has not spoken."""
    edges = ("start -> a", "a -> b", "b -> c", "c -> d", "d -> done", "a -> u", "u -> done")
    undo_by_u = Policy(compensation="u")
    policies = {"a": undo_by_u, "c": undo_by_u, "d": Policy(on_failure="compensate")}
    undone = []

    async def undo(point: DecisionPoint, payload: Payload) -> None:
        undone.append((point.agent, payload.content))

    script = Script(seconds(u=1000.0), {("d", 0): "broken"})
    with pytest.raises(AgentFailed, match=r"agent 'd' failed .* cannot\. Compensated: \['c', 'a'\]"):
        play(script.turn(with_policies(edges, policies), undo=undo))
    assert undone == [("c", "c0"), ("a", "a0")]
    assert script.cancelled == ["u"]


def test_a_compensation_that_fails_is_told_and_the_others_are_still_asked() -> None:
    edges = ("start -> a", "a -> c", "c -> d", "d -> done", "a -> u", "u -> done")
    policies = {"a": Policy(compensation="u"), "c": Policy(compensation="u"), "d": Policy(on_failure="compensate")}

    async def undo(point: DecisionPoint, payload: Payload) -> None:
        if point.agent == "c":
            raise EngineError("too late")

    script = Script(seconds(), {("d", 0): "broken"})
    with pytest.raises(AgentFailed, match=r"Not compensated: 'c': EngineError: too late\. Compensated: \['a'\]"):
        play(script.turn(with_policies(edges, policies), undo=undo))


def test_cancelling_a_turn_cancels_everybody_at_work() -> None:
    script = Script(seconds(slow=100.0, next=100.0))

    async def cancelled() -> None:
        turn = asyncio.create_task(script.turn(plan_of(TWO_PATHS)), name="turn")
        await asyncio.sleep(50.0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    play(cancelled())
    assert sorted(script.cancelled) == ["next", "slow"]
