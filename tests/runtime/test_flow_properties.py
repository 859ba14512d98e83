"""Random teams with routes, joins and loops, random payloads, random order of completion: a turn always ends."""

from hypothesis import given
from hypothesis import strategies as st

from mas.core.errors import GraphError
from mas.graph import Plan
from mas.runtime.flow import Flow
from mas.runtime.tokens import DEAD, FIRED, HELD, KEPT, LIVE, NONE, SKIPPED
from mas.testing.teams import plan_of

ROUTES = ("x", "y", "z")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Checked teams of up to seven agents: a random forward graph, some edges with routes, up to three loops."""
    size = draw(st.integers(1, 7))
    names = [f"a{index}" for index in range(size)]
    edges: dict[tuple[str, str], str] = {}
    for at, name in enumerate(names):
        before = ["start", *names[:at]]
        after = [*names[at + 1 :], "done"]
        for source in draw(st.lists(st.sampled_from(before), min_size=1, max_size=3, unique=True)):
            edges.setdefault((source, name), "")
        edges.setdefault((name, draw(st.sampled_from(after))), "")
    for ends in edges:
        if ends[0] != "start" and draw(st.booleans()):
            edges[ends] = f" when {draw(st.sampled_from(ROUTES))}"
    lines = [f"{source} -> {target}{when}" for (source, target), when in edges.items()]
    for _ in range(draw(st.integers(0, 3))):
        tail = draw(st.integers(0, size - 1))
        head = draw(st.integers(0, tail))
        when = draw(st.sampled_from(["", *[f" when {route}" for route in ROUTES]]))
        lines.append(f"{names[tail]} -> {names[head]}{when} loop {draw(st.integers(1, 2))}")
    joins = {name: draw(st.sampled_from(["all", "any"])) for name in [*names, "done"]}
    return _compiled(lines, joins)


def _compiled(lines: list[str], joins: dict[str, str]) -> Plan:
    """The team; edges that its check refuses (loops that lead nowhere, overlaps) are left out."""
    while True:
        try:
            return plan_of(lines, joins=joins)
        except GraphError as error:
            loops = [line for line in lines if "loop" in line and f"'{line}'" in str(error)]
            lines = [line for line in lines if line not in loops[:1]]
            if not loops:
                raise


def play(plan: Plan, data: st.DataObject) -> Flow:
    """Begin and complete agents in any order, with any routes, until the turn is over."""
    flow = Flow.start(plan)
    for _ in range(2 * sum(plan.wiring.max_visits)):
        if flow.finished:
            return flow
        steps = [("begin", agent) for agent in flow.ready()] + [("complete", agent) for agent in flow.running()]
        assert steps, "the turn hangs"
        step, agent = data.draw(st.sampled_from(steps))
        if step == "begin":
            flow = flow.begin(agent)
        else:
            text = data.draw(st.sampled_from([*ROUTES, "none", "fail"]))
            flow = flow.complete(agent, plan.roles[agent].parse(text))
        assert all(flow.visits(name) <= plan.max_visits(name) for name in plan.agents)
    assert flow.finished, "more steps than the bound"
    return flow


@given(plan=plans(), data=st.data())
def test_every_turn_ends_within_its_bound(plan: Plan, data: st.DataObject) -> None:
    play(plan, data)


@given(plan=plans(), data=st.data())
def test_at_the_end_every_agent_and_every_edge_is_decided(plan: Plan, data: st.DataObject) -> None:
    flow = play(plan, data)
    if plan.spec.join("done").need == "any" and flow.arrived:
        return
    assert set(flow.status) <= {FIRED, SKIPPED}
    forward = {flow.tokens[edge.index] for edge in plan.wiring.edges if edge.loop is None}
    assert forward <= {LIVE, KEPT, DEAD}
    assert not forward & {NONE, HELD}


@given(plan=plans(), data=st.data())
def test_an_agent_that_spoke_had_a_live_token_and_was_heard_by_those_it_reached(
    plan: Plan, data: st.DataObject
) -> None:
    flow = play(plan, data)
    for agent in plan.agents:
        sources = {edge.source for edge in plan.edges_in[agent]}
        heard = flow.messages(agent)
        assert {message.sender for message in heard} <= sources
        assert not flow.own(agent) or heard or "start" in sources
        assert all(message.payload in flow.own(message.sender) for message in heard)


@given(plan=plans(), data=st.data())
def test_loops_keep_to_their_bounds_and_bodies_nest_as_declared(plan: Plan, data: st.DataObject) -> None:
    flow = play(plan, data)
    assert all(use <= loop.bound for use, loop in zip(flow.uses, plan.wiring.loops, strict=True))
    for loop in plan.wiring.loops:
        assert loop.head in loop.body
        assert plan.wiring.edges[loop.edge].tail in loop.body


@given(plan=plans(), data=st.data())
def test_replaying_the_same_steps_gives_the_same_key(plan: Plan, data: st.DataObject) -> None:
    flow = again = Flow.start(plan)
    while not flow.finished:
        agent = flow.ready()[0]
        payload = plan.roles[agent].parse(data.draw(st.sampled_from([*ROUTES, "none"])))
        fork = flow.begin(agent)
        fork.complete(agent, plan.roles[agent].parse("fail"))
        flow = fork.complete(agent, payload)
        again = again.begin(agent).complete(agent, payload)
        assert flow.key() == again.key()
