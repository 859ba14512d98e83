"""Random teams with all joins, routes, loops, lists and teams within, any order, any expiry: what always holds."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas.core.errors import GraphError
from mas.core.naming import agent_of, local_name
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph import TeamPlan
from mas.graph.check_messages import senders_of
from mas.runtime.flow import Flow
from mas.runtime.flow_state import DEAD, FIRED, HELD, KEPT, LIVE, NONE, SKIPPED
from mas.testing.teams import plan_of

unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
"""A team takes as long to draw as the machine is busy."""
ROUTES = ("x", "y", "z")
WORDS = (*ROUTES, "none", "fail", "", "x y z")
"""Texts: routes, none, a failure; for who makes lists: one item, none, three."""
JOINS = st.sampled_from(
    [
        *("all", "any", "quorum", 2, 3),
        {"need": 2, "unmet": "skip"},
        {"need": 3, "unmet": "skip", "timeout_s": 1},
        {"need": "all", "timeout_s": 1},
    ]
)


@st.composite
def plans(draw: st.DrawFn, joins: st.SearchStrategy[object] = JOINS, loops: int = 3) -> TeamPlan:
    """Checked teams of up to seven members, some of them teams, each with so many loops at most."""
    lines, waits = draw(drawn_team("a", 7, joins, loops))
    names = dict.fromkeys(re.findall(r"a[0-9]", " ".join(lines)))
    inner = {}
    for number, name in enumerate(draw(st.lists(st.sampled_from(list(names)), max_size=2, unique=True))):
        parts = draw(drawn_team(f"b{number}", 3, joins, loops))
        inner[name] = _checked(*parts, {}).spec
        lines = [re.sub(r" when .| map", "", line) if name in line.split()[:3] else line for line in lines]
    return _checked(list(dict.fromkeys(lines)), waits, inner)


@st.composite
def drawn_team(
    draw: st.DrawFn, prefix: str, largest: int, joins: st.SearchStrategy[object], loops: int
) -> tuple[list[str], dict[str, object]]:
    """A random forward graph, some edges with routes, some that hand out lists, some loops; and its joins."""
    size = draw(st.integers(1, largest))
    names = [f"{prefix}{index}" for index in range(size)]
    edges: dict[tuple[str, str], str] = {}
    mapped = draw(st.sets(st.sampled_from(names[1:]), max_size=2)) if size > 1 else set()
    for at, name in enumerate(names):
        if name in mapped:
            edges[draw(st.sampled_from(names[:at])), name] = " map"
        else:
            for source in draw(st.lists(st.sampled_from(["start", *names[:at]]), min_size=1, max_size=3, unique=True)):
                edges.setdefault((source, name), "")
        edges.setdefault((name, draw(st.sampled_from([*sorted({*names[at + 1 :]} - mapped), "done"]))), "")
    for source, target in edges:
        if source not in {"start", *mapped} and target not in mapped and draw(st.booleans()):
            edges[source, target] = f" when {draw(st.sampled_from(ROUTES))}"
    lines = [f"{source} -> {target}{text}" for (source, target), text in edges.items()]
    for _ in range(draw(st.integers(0, loops))):
        tail = draw(st.integers(0, size - 1))
        head = draw(st.integers(0, tail))
        when = draw(st.sampled_from(["", *[f" when {route}" for route in ROUTES]]))
        lines.append(f"{names[tail]} -> {names[head]}{when} loop {draw(st.integers(1, 2))}")
    return lines, {name: draw(joins) for name in [*names, "done"]}


def _checked(lines: list[str], joins: dict[str, object], teams: dict[str, TeamSpec]) -> TeamPlan:
    """The team; what its check refuses (loops that lead nowhere, joins that ask too much) is left out."""
    while True:
        try:
            return plan_of(lines, joins=joins, teams=teams)
        except GraphError as error:
            loops = [line for line in lines if "loop" in line and f"'{line}'" in str(error)]
            waits = [name for name in joins if f"the join of '{name}'" in str(error)]
            outputs = re.findall(r"the output agent '(.*?)' is mapped", str(error))
            if not loops and not waits and not outputs:
                raise
            lines = [line.removesuffix(" map") if line.split()[2] in outputs else line for line in lines]
            lines = [line for line in lines if line not in loops[:1]]
            joins = {name: join for name, join in joins.items() if name not in waits}


def play(plan: TeamPlan, data: st.DataObject) -> Flow:
    """Begin, complete and expire in any order, with any texts, until the turn is over."""
    flow = Flow.start(plan)
    instances = plan.wiring.items or (1,) * len(plan.agents)
    visits = sum(plan.max_visits(agent) * max(most, 1) for agent, most in zip(plan.agents, instances, strict=True))
    for _ in range(2 * visits + 99):
        if flow.finished:
            return flow
        steps = [("begin", agent) for agent in flow.ready()] + [("complete", agent) for agent in flow.running()]
        assert steps, "the turn hangs"
        steps += [("expire", join) for join in flow.waiting_joins() if join in plan.timeouts]
        step, agent = data.draw(st.sampled_from(steps))
        if step == "complete":
            flow = flow.complete(agent, plan.roles[agent_of(agent)].parse(data.draw(st.sampled_from(WORDS))))
        else:
            before, flow = flow, flow.begin(agent) if step == "begin" else flow.expire(agent)
            assert flow.key() != before.key(), "nothing happened"
        assert all(flow.visits(name) <= plan.max_visits(name) for name in (*plan.agents, *flow.running()))
    assert flow.finished, "more steps than the bound"
    return flow


@unhurried
@given(plan=plans(), data=st.data())
def test_at_the_end_every_agent_and_every_edge_is_decided(plan: TeamPlan, data: st.DataObject) -> None:
    flow = play(plan, data)
    if plan.spec.join("done").need != "all" or "done" in plan.timeouts:
        return
    assert set(flow.status) <= {FIRED, SKIPPED}
    forward = {flow.tokens[edge.index] for edge in plan.wiring.edges if edge.loop is None}
    assert forward <= {LIVE, KEPT, DEAD}
    assert not forward & {NONE, HELD}


@unhurried
@given(plan=plans(), data=st.data())
def test_an_agent_that_spoke_had_a_live_token_and_was_heard_by_those_it_reached(
    plan: TeamPlan, data: st.DataObject
) -> None:
    flow = play(plan, data)
    for agent in plan.agents:
        heard = flow.messages(agent)
        sources = [edge.source for edge in plan.edges_in[agent]]
        assert {message.sender for message in heard} <= {local_name(name) for name in senders_of(plan.spec, agent)}
        assert not flow.own(agent) or heard or any(local_name(source) == "start" for source in sources)
        for source in sources:
            if source in plan.agents:
                spoken = [message.payload for message in heard if message.sender == local_name(source)]
                assert all(payload in flow.own(source) for payload in spoken)


@unhurried
@given(plan=plans(), data=st.data())
def test_loops_keep_to_their_bounds_and_bodies_nest_as_declared(plan: TeamPlan, data: st.DataObject) -> None:
    flow = play(plan, data)
    assert all(use <= loop.bound for use, loop in zip(flow.uses, plan.wiring.loops, strict=True))
    for loop in plan.wiring.loops:
        assert loop.head in loop.body
        assert plan.wiring.edges[loop.edge].tail in loop.body


@unhurried
@given(plan=plans(), data=st.data())
def test_replaying_the_same_steps_gives_the_same_key(plan: TeamPlan, data: st.DataObject) -> None:
    flow = again = Flow.start(plan)
    while not flow.finished:
        agent = flow.ready()[0]
        role = plan.roles[agent_of(agent)]
        payload = role.parse(data.draw(st.sampled_from(WORDS)))
        fork = flow.begin(agent)
        fork.complete(agent, role.parse("fail"))
        flow = fork.complete(agent, payload)
        again = again.begin(agent).complete(agent, payload)
        assert flow.key() == again.key()


@unhurried
@given(plan=plans(st.just("all"), 0), seed=st.integers(0, 99), data=st.data())
def test_who_is_quick_does_not_matter_where_all_joins_wait_for_all(
    plan: TeamPlan, seed: int, data: st.DataObject
) -> None:
    ends = []
    for _ in range(2):
        flow = Flow.start(plan)
        while not flow.finished:
            for agent in flow.ready():
                flow = flow.begin(agent)
            agent = data.draw(st.sampled_from(flow.running()))
            text = WORDS[derive_seed(agent, flow.visits(agent), seed) % len(WORDS)]
            flow = flow.complete(agent, plan.roles[agent_of(agent)].parse(text))
        heard = [sorted(map(repr, flow.messages(agent))) for agent in plan.agents]
        ends.append((flow.said, flow.fans, flow.tokens, flow.status, flow.action(), flow.committed, heard))
    assert ends[0] == ends[1]
