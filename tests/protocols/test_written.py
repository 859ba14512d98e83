"""Protocols that a team's file names in place of its edges."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mas import protocols, scenarios
from mas.core.errors import GraphError
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.protocols.written import PROTOCOLS
from mas.roles import build_roles

ROLE: Mapping[str, Any] = {"type": "executor", "view": "solo", "max_tokens": 3}
ACT = RoleSpec.model_validate(ROLE)
MADE: dict[str, tuple[Any, list[str], Callable[[], TeamSpec]]] = {
    "solo": ("solo", ["solo"], lambda: protocols.solo(ACT, name="t")),
    "pipeline": ("b -> a", ["b", "a"], lambda: protocols.pipeline({"b": ACT, "a": ACT}, name="t")),
    "plan_execute": ("plan_execute", ["executor"], lambda: protocols.plan_execute(executor=ACT, name="t")),
    "plan_execute_verify": (
        {"name": "plan_execute_verify", "revisions": 3},
        ["planner"],
        lambda: protocols.plan_execute_verify(ACT, revisions=3, name="t"),
    ),
    "fan_out": ("fan_out", ["x", "judge", "y"], lambda: protocols.fan_out({"x": ACT, "y": ACT}, ACT, name="t")),
    "vote": (
        {"name": "vote", "voters": 2},
        ["worker", "planner"],
        lambda: protocols.vote(ACT, planner=ACT, voters=2, name="t"),
    ),
    "debate": (
        {"name": "debate", "rounds": 1},
        ["pro", "con", "judge"],
        lambda: protocols.debate({"pro": ACT, "con": ACT}, ACT, rounds=1, name="t"),
    ),
    "critique_and_refine": (
        "critique_and_refine",
        ["critic", "writer"],
        lambda: protocols.critique_and_refine(ACT, ACT, name="t"),
    ),
    "self_play": ("self_play", ["east", "west"], lambda: protocols.self_play({"east": ACT, "west": ACT}, name="t")),
}


@pytest.mark.parametrize("name", MADE)
def test_a_file_with_a_protocol_is_the_team_that_its_function_makes(name: str, tmp_path: Path) -> None:
    protocol, roles, make = MADE[name]
    file = tmp_path / "team.yaml"
    content = {"name": "t", "protocol": protocol, "roles": {role: dict(ROLE) for role in roles}}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    team = load_team(file)
    assert team == make()
    assert compile_team(team, build_roles(team)).digest == compile_team(make(), build_roles(make())).digest


def test_every_protocol_but_the_one_of_teams_can_be_named() -> None:
    assert set(PROTOCOLS) == set(protocols.__all__) - {"nested", "pipeline"} == set(MADE) - {"pipeline"}
    for make in PROTOCOLS.values():
        options = [one for one in inspect.signature(make).parameters.values() if one.kind is one.KEYWORD_ONLY]
        assert {one.annotation for one in options if one.name != "name"} <= {int, "int"}


def test_other_keys_stand_beside_it_and_roles_may_be_left_out_or_files(tmp_path: Path) -> None:
    (tmp_path / "role.yaml").write_text(yaml.safe_dump(dict(ROLE)))
    file = tmp_path / "team.yaml"
    more = "policies: {executor: {timeout_s: 5}}\nroles: {executor: role.yaml}\n"
    file.write_text(f"name: t\nprotocol: plan_execute\n{more}")
    team = load_team(file)
    assert team.policies["executor"].timeout_s == 5
    assert (team.roles["executor"], team.roles["planner"].type) == (ACT, "planner")
    assert load_team({"name": "t", "protocol": "plan_execute"}) == protocols.plan_execute(name="t")


def test_a_further_role_is_the_stand_in_that_a_policy_names() -> None:
    policies = {"executor": {"fallback": "backup"}}
    roles = {"executor": dict(ROLE), "backup": dict(ROLE)}
    team = load_team({"name": "t", "protocol": "plan_execute", "roles": roles, "policies": policies})
    assert team.stand_ins() == ("backup",)
    assert list(compile_team(team, build_roles(team)).agents) == ["planner", "executor"]
    roles["planner"] = dict(ROLE)
    team = load_team({"name": "t", "protocol": "planner -> executor", "roles": roles, "policies": policies})
    assert team.stand_ins() == ("backup",)
    assert [(edge.source, edge.target) for edge in team.edges][1] == ("planner", "executor")


def test_members_that_are_left_out_are_the_built_in_ones() -> None:
    assert load_team({"name": "t", "protocol": "debate"}) == protocols.debate(name="t")


def around(team: str) -> dict[str, Any]:
    """A team whose one member is the team of a file."""
    edges = ["start -> one", "one -> done"]
    return {"name": "o", "roles": {}, "agents": {"one": {"team": team}}, "edges": edges, "output": "one"}


@pytest.mark.parametrize("name", [name for name in MADE if name != "self_play"])
def test_a_team_with_a_protocol_can_play_within_another(name: str, tmp_path: Path) -> None:
    protocol, roles, make = MADE[name]
    inner = {"name": "t", "protocol": protocol, "roles": {role: dict(ROLE) for role in roles}}
    (tmp_path / "inner.yaml").write_text(yaml.safe_dump(inner, sort_keys=False))
    team = load_team(around(str(tmp_path / "inner.yaml")))
    assert set(team.members()) == {f"one.{agent}" for agent in make().members()}


def test_a_shipped_team_can_play_within_another() -> None:
    shop = str(Path(scenarios.__file__).parent / "shop" / "team.yaml")
    assert set(load_team(around(shop)).members()) == {"one.customer", "one.seller"}


@pytest.mark.parametrize(
    ("team", "text"),
    [
        ({"protocol": "debat"}, r"no protocol 'debat'\. Did you mean 'debate'\?"),
        ({"protocol": "pipeline", "roles": {"b": {}, "a": {}}}, "a pipeline is written as its order, .*: b -> a'"),
        ({"protocol": "a -> b"}, "protocol has 'a', which is no role"),
        ({"protocol": "a -> b -> a", "roles": {"a": {}, "b": {}}}, "has role 'a' 2 times"),
        ({"protocol": "a -> b", "roles": {"a": {}, "b": {}, "c": {}}}, "has role 'c' 0 times"),
        ({"protocol": "nested"}, "no protocol 'nested'"),
        ({"protocol": 3}, "protocol is 3, but a name"),
        ({"protocol": {"voters": 2}}, "no protocol None"),
        ({"protocol": {"name": "vote", "voter": 2}}, r"vote has no option 'voter'\. Did you mean 'voters'\?"),
        ({"protocol": {"name": "vote", "voters": "two"}}, "voters is 'two', but a whole number"),
        ({"protocol": {"name": "vote", "voters": 0}}, "there is no worker"),
        ({"protocol": "plan_execute", "roles": {"plannr": {}}}, r"has no role 'plannr'\. Did you mean 'planner'\?"),
        ({"protocol": {"name": "vote", 5: 3}}, "vote has no option 5"),
        ({"protocol": "fan_out", "roles": {"a": {}, "judg": {}}}, "role 'judg' for one more member: is it 'judge'"),
        (
            {"protocol": "self_play", "roles": {"a": {}, "b": {}}, "policies": {"a": {"fallback": "b"}}},
            "a policy names it as a stand-in: write the edges of this team out",
        ),
        (
            {"protocol": "solo", "budgt": 3, "roles": {"solo": {"maxtokens": 3}, "b": {"tipe": "x"}}},
            "'roles.solo.maxtokens'.*'roles.b.tipe'.*'budgt'",
        ),
        ({"protocl": "solo"}, r"unknown key 'protocl'.* Did you mean 'protocol'"),
        ({"protocol": "solo", "roles": ["solo"]}, "'roles' is"),
        ({"protocol": "solo", "edges": ["start -> solo"]}, "which says edges: leave out one of both"),
    ],
)
def test_a_protocol_that_makes_no_team_is_one_error(team: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError, match=rf"(?s)team is not a team: .*{text}|{text}"):
        load_team({"name": "t"} | team)
