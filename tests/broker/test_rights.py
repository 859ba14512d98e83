"""Rights follow the graph: what is allowed, and that nothing else is."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.broker.rights import acl_text, team_rights
from mas.core.errors import ConfigError
from mas.core.policy import Policy
from mas.core.role import RoleSpec
from mas.core.team import EdgeSpec, TeamSpec
from mas.protocols import fan_out, plan_execute_verify, solo, vote

SOLO = """\
# Written by `mas broker` from the team's graph. What no line allows is denied.

user solo/solo
topic read mas/s/to/solo%2Fsolo/+
topic read mas/s/back/solo%2Fsolo/+/+
topic read mas/s/presence/+/+
topic write mas/s/to/solo%2Frun/solo%2Fsolo
topic write mas/s/back/solo%2Fsolo/+/solo%2Fsolo
topic write mas/s/back/coordinator/+/solo%2Fsolo
topic write mas/s/presence/solo%2Fsolo/+

user coordinator
topic read mas/s/to/solo%2Fenvironment/+
topic read mas/s/to/solo%2Frun/+
topic read mas/s/back/coordinator/+/+
topic read mas/s/presence/+/+
topic write mas/s/to/solo%2Fsolo/coordinator
topic write mas/s/to/solo%2Fenvironment/coordinator
topic write mas/s/back/solo%2Fsolo/+/coordinator
topic write mas/s/back/coordinator/+/coordinator
topic write mas/s/presence/coordinator/+

user operator
topic read mas/s/presence/+/+
topic read $SYS/#
"""

PAIR = """\
user pair/a
topic read mas/s/to/pair%2Fa/+
topic read mas/s/back/pair%2Fa/+/+
topic read mas/s/presence/+/+
topic write mas/s/to/pair%2Fb/pair%2Fa
topic write mas/s/to/pair%2Frun/pair%2Fa
topic write mas/s/back/pair%2Fa/+/pair%2Fa
topic write mas/s/back/pair%2Fb/+/pair%2Fa
topic write mas/s/back/coordinator/+/pair%2Fa
topic write mas/s/presence/pair%2Fa/+

user pair/b
topic read mas/s/to/pair%2Fb/+
topic read mas/s/back/pair%2Fb/+/+
topic read mas/s/presence/+/+
topic write mas/s/to/pair%2Frun/pair%2Fb
topic write mas/s/back/pair%2Fa/+/pair%2Fb
topic write mas/s/back/pair%2Fb/+/pair%2Fb
topic write mas/s/back/coordinator/+/pair%2Fb
topic write mas/s/presence/pair%2Fb/+

user coordinator
"""


def team(name: str, agents: list[str], edges: list[tuple[str, str]]) -> TeamSpec:
    """A team as far as rights go; it need not be one that can run."""
    return TeamSpec(
        name=name,
        roles={"worker": RoleSpec()},
        agents=dict.fromkeys(agents, "worker"),
        edges=tuple(EdgeSpec(source=source, target=target) for source, target in edges),
        output=agents[0],
    )


def test_a_team_of_one_answers_the_coordinator_and_writes_to_nobody() -> None:
    assert acl_text(team_rights(solo(), "s")) == SOLO


def test_an_edge_lets_its_source_send_and_its_target_answer() -> None:
    edges = [("start", "a"), ("a", "b"), ("b", "done")]
    assert PAIR in acl_text(team_rights(team("pair", ["a", "b"], edges), "s"))


Lines = dict[str, dict[str, list[str]]]


def parsed(text: str) -> Lines:
    """User -> access -> filters, read as mosquitto reads them."""
    users: Lines = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "user":
            current = users.setdefault(rest, {"read": [], "write": []})
        elif word == "topic":
            access, _, found = rest.partition(" ")
            current[access].append(found)
    return users


def level(name: str) -> str:
    """A name as one level."""
    return quote(name, safe="")


def matches(wanted: str, topic: str) -> bool:
    """MQTT's rule, as it stands in the standard (section 4.7)."""
    wanted_levels, levels = wanted.split("/"), topic.split("/")
    if topic.startswith("$") != wanted.startswith("$"):
        return False
    for position, part in enumerate(wanted_levels):
        if part == "#":
            return True
        if position == len(levels) or part not in ("+", levels[position]):
            return False
    return len(wanted_levels) == len(levels)


def test_the_matcher_of_this_test_is_right() -> None:
    assert matches("a/+/c", "a/b/c")
    assert matches("a/#", "a/b/c")
    assert not matches("a/+", "a/b/c")
    assert not matches("a/+/c", "a/b")
    assert not matches("#", "$SYS/x")


def check(spec: TeamSpec) -> None:
    """Ask for each pair of principals and each kind of topic whether the file says what the graph says."""
    users = parsed(acl_text(team_rights(spec, "s")))
    agents = {agent: f"{spec.name}/{agent}" for agent in spec.members()}
    environment = f"{spec.name}/environment"
    everybody = [*agents.values(), "coordinator", "operator", "stranger"]
    run = f"{spec.name}/run"
    listeners = {name: name for name in agents.values()} | {environment: "coordinator", run: "coordinator"}
    edges = {(agents[e.source], agents[e.target]) for e in spec.edges if e.source != "start" and e.target != "done"}
    sends = edges | {("coordinator", address) for address in listeners if address != run}
    sends |= {(agent, run) for agent in agents.values()}
    asks = {(source, listeners[address]) for source, address in sends}
    assert set(users) == {*everybody} - {"stranger"}

    def ask(access: str, user: str) -> Callable[[str], bool]:
        return lambda topic: any(matches(line, topic) for line in users.get(user, {}).get(access, ()))

    for user in everybody:
        may_read, may_write = ask("read", user), ask("write", user)
        for sender in everybody:
            for address in (*listeners, "stranger"):
                topic = f"mas/s/to/{level(address)}/{level(sender)}"
                assert may_read(topic) == (listeners.get(address) == user)
                assert may_write(topic) == (sender == user and (user, address) in sends)
            for other in everybody:
                back = f"mas/s/back/{level(other)}/1/{level(sender)}"
                takes_part = user not in ("operator", "stranger")
                assert may_read(back) == (other == user and takes_part)
                asked, was_asked = (user, other) in asks, (other, user) in asks
                is_itself = other == user and takes_part
                assert may_write(back) == (sender == user and (asked or was_asked or is_itself))
        for other in everybody:
            presence = f"mas/s/presence/{level(other)}/1"
            assert may_read(presence) == (user != "stranger")
            assert may_write(presence) == (other == user and user not in ("operator", "stranger"))
        for topic in ("mas/s/to", "mas/other/presence/x/1", "$SYS/broker/version", "$CONTROL/dynamic-security/v1", "x"):
            assert may_read(topic) == (user == "operator" and topic.startswith("$SYS"))
            assert not may_write(topic)


@pytest.mark.parametrize(
    "spec",
    [solo(), plan_execute_verify(revisions=2), vote(planner=RoleSpec()), fan_out({"x": RoleSpec(), "y": RoleSpec()})],
    ids=lambda spec: spec.name,
)
def test_the_graph_and_the_file_say_the_same_of_every_pair(spec: TeamSpec) -> None:
    check(spec)


AGENTS = st.lists(
    st.sampled_from(["a", "b", "a.b", "b-c", "coordinator", "operator", "a=", "é"]), min_size=1, max_size=3, unique=True
)


@settings(max_examples=25, deadline=None)
@given(agents=AGENTS, choice=st.data())
def test_any_graph_and_its_file_say_the_same_of_every_pair(agents: list[str], choice: st.DataObject) -> None:
    ends = st.tuples(st.sampled_from(["start", *agents]), st.sampled_from([*agents, "done"]))
    check(team("any", agents, choice.draw(st.lists(ends, max_size=6))))


@pytest.mark.parametrize("name", ["a b", "a:b", "a#", "a+", "a\nuser b", "", "a$HOME", "'a'"])
def test_a_name_that_files_cannot_hold_is_refused(name: str) -> None:
    for spec in (team(name, ["a"], []), team("t", [name], [])):
        with pytest.raises(ConfigError, match=r"cannot be a user name: use letters"):
            team_rights(spec, "s")


@pytest.mark.parametrize("name", ["environment", "run"])
def test_an_agent_cannot_take_an_address_of_whoever_plays_the_team(name: str) -> None:
    with pytest.raises(ConfigError, match="give it another name"):
        team_rights(team("t", [name], []), "s")


def test_edges_into_and_out_of_a_team_within_reach_its_agents() -> None:
    inner = {"name": "pair", "roles": {"w": {}, "c": {}}, "edges": ["start -> w", "w -> c", "c -> done"], "output": "c"}
    spec = TeamSpec.model_validate(
        {
            "name": "outer",
            "roles": {"a": {}, "b": {}},
            "agents": {"a": "a", "b": "b", "solve": {"team": inner}},
            "edges": ["start -> a", "a -> solve", "solve -> b", "b -> done"],
            "output": "b",
        }
    )
    writes = {one.principal: " ".join(one.write) for one in team_rights(spec, "s")}
    for source, target in (("a", "solve.w"), ("solve.w", "solve.c"), ("solve.c", "b")):
        assert f"to/outer%2F{target}/outer%2F{source}" in writes[f"outer/{source}"]
    assert "to/outer%2Fb/" not in writes["outer/a"] + writes["outer/solve.w"]


def test_a_stand_in_has_rights_of_its_own() -> None:
    spec = solo()
    roles = {**spec.roles, "spare": RoleSpec(type="executor")}
    policies = {"solo": Policy(fallback="spare")}
    spare = TeamSpec.model_validate(
        spec.model_dump() | {"roles": roles, "policies": policies, "agents": {"solo": "solo"}}
    )
    assert "solo/spare" in {one.principal for one in team_rights(spare, "s")}
