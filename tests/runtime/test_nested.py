"""A team as a member of a team: what its members hear, what goes out, how its ends wait, and what is refused."""

import pickle
from pathlib import Path

import pytest
import yaml
from steps import contents, said_all, say

from mas.core.errors import GraphError
from mas.core.role import RoleSpec
from mas.core.team import MAX_DEPTH, EdgeSpec, TeamSpec
from mas.graph import TeamPlan, compile_team, load_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.testing.teams import plan_of, team_of

REVISED = ("start -> writer", "writer -> critic", "critic -> done when ok", "critic -> writer when no loop 1")
OUTER = ("start -> p", "p -> solve", "solve -> j", "j -> done")


def inner(*edges: str, output: str | None = None, **joins: object) -> TeamSpec:
    return team_of(edges, output, joins)[0]


REVISING = inner(*REVISED, output="writer", writer="any")


def test_only_the_output_agents_last_output_goes_out_and_under_the_name_of_the_team() -> None:
    plan = plan_of(OUTER, teams={"solve": REVISING})
    words = [("p", "plan"), ("solve.writer", "one"), ("solve.critic", "no"), ("solve.writer", "two")]
    flow = said_all(plan, *words)
    assert flow.ready() == ("solve.critic",)
    flow = say(flow, "solve.critic", "ok")
    assert flow.ready() == ("j",)
    assert contents(flow, "j") == [("solve", "two")]
    assert say(flow, "j").committed


def test_the_leader_of_a_team_within_leads_where_the_outer_one_names_that_team() -> None:
    outer = {"name": "o", "roles": {}, "edges": ["start -> solve", "solve -> done"], "output": "solve"}
    led = REVISING.model_copy(update={"leader": "critic"})
    assert TeamSpec.model_validate(outer | {"agents": {"solve": {"team": led}}}).led_by == "solve.critic"
    plain = TeamSpec.model_validate(outer | {"agents": {"solve": {"team": REVISING}}})
    assert (plain.leader, plain.led_by) == (None, "solve.writer")
    named = outer | {"output": "j", "leader": "solve", "roles": {"j": {}}, "agents": {"solve": {"team": led}, "j": "j"}}
    assert TeamSpec.model_validate(named).led_by == "solve.critic"


def test_its_members_hear_what_the_edge_brings_and_each_other_under_their_own_names() -> None:
    edges = ("start -> p", "start -> secret", "p -> solve", "solve -> j", "secret -> j", "j -> done")
    flow = said_all(plan_of(edges, teams={"solve": REVISING}), ("secret", "s"), ("p", "plan"), ("solve.writer", "one"))
    flow = say(flow, "solve.critic", "no")
    assert contents(flow, "solve.writer") == [("p", "plan"), ("critic", "no")]
    assert contents(flow, "solve.critic") == [("writer", "one")]


def test_a_team_that_ends_without_an_output_is_a_branch_not_taken() -> None:
    plan = plan_of([*OUTER, "p -> j"], teams={"solve": REVISING})
    rejected = [
        ("p", "x"),
        ("solve.writer", "1"),
        ("solve.critic", "no"),
        ("solve.writer", "2"),
        ("solve.critic", "no"),
    ]
    flow = said_all(plan, *rejected)
    assert flow.ready() == ("j",)
    assert contents(flow, "j") == [("p", "x")]
    silent = inner("start -> a", "a -> b when on", "a -> done when off", "b -> done", output="b")
    flow = said_all(plan_of([*OUTER, "p -> j"], teams={"solve": silent}), ("p", "x"), ("solve.a", "off"))
    assert contents(flow, "j") == [("p", "x")]


def test_a_failure_of_the_output_agent_goes_out_as_data() -> None:
    flow = said_all(plan_of(OUTER, teams={"solve": inner("start -> a", "a -> done")}), ("p", "x"), ("solve.a", "fail"))
    assert contents(flow, "j") == [("solve", "?")]


def test_a_team_waits_at_its_entry_as_joins_says() -> None:
    edges = ("start -> a", "start -> b", "a -> solve", "b -> solve", "solve -> done")
    pair = inner("start -> x", "start -> y", "x -> z", "y -> z", "z -> done")
    flow = said_all(plan_of(edges, teams={"solve": pair}), ("b", "1"))
    assert flow.ready() == ("a",)
    flow = say(flow, "a", "2")
    assert flow.ready() == ("solve.x", "solve.y")
    assert contents(flow, "solve.x") == contents(flow, "solve.y") == [("b", "1"), ("a", "2")]
    flow = said_all(plan_of(edges, joins={"solve": "any"}, teams={"solve": pair}), ("b", "1"))
    assert flow.ready() == ("a", "solve.x", "solve.y")
    plan = plan_of(edges, joins={"solve": {"timeout_s": 1}}, teams={"solve": pair})
    flow = said_all(plan, ("b", "1"))
    assert (flow.waiting_joins(), dict(plan.timeouts)) == (("solve",), {"solve": 1.0})
    assert flow.expire("solve").ready() == ("a", "solve.x", "solve.y")


def test_the_done_of_a_team_waits_as_its_own_joins_say() -> None:
    race = ("start -> x", "start -> y", "x -> done", "y -> done")
    flow = said_all(plan_of(OUTER, teams={"solve": inner(*race)}), ("p", "x"), ("solve.x", "1"))
    assert flow.ready() == ("solve.y",)
    flow = said_all(plan_of(OUTER, teams={"solve": inner(*race, done="any")}), ("p", "x"), ("solve.x", "1"))
    assert flow.ready() == ("j", "solve.y")
    plan = plan_of(OUTER, teams={"solve": inner(*race, done={"timeout_s": 2})})
    flow = said_all(plan, ("p", "x"), ("solve.x", "1"))
    assert flow.waiting_joins() == ("solve.done",) == tuple(plan.timeouts)
    assert flow.expire("solve.done").ready() == ("j", "solve.y")


def test_a_loop_around_a_team_brings_what_is_new_and_renews_the_loops_within() -> None:
    edges = ("start -> p", "p -> solve", "solve -> j", "j -> p when again loop 1", "j -> done when on")
    plan = plan_of(edges, teams={"solve": REVISING})
    once = [("solve.writer", "w"), ("solve.critic", "no"), ("solve.writer", "w"), ("solve.critic", "ok")]
    flow = said_all(plan, ("p", "first"), *once, ("j", "again"), ("p", "second"), *once, ("j", "on"))
    assert flow.committed
    heard = [content for sender, content in contents(flow, "solve.writer") if sender == "p"]
    assert heard == ["first", "second"]
    # Outer iterations: 2, and in each the writer writes 1 + 1 times.
    assert flow.visits("solve.writer") == plan.max_visits("solve.writer") == 4


def test_a_loop_may_lead_from_a_team_and_back_into_it() -> None:
    edges = ("start -> solve", "solve -> j", "j -> solve when again loop 1", "j -> done when on")
    flow = said_all(plan_of(edges, teams={"solve": inner("start -> a", "a -> done")}), ("solve.a", "1"), ("j", "again"))
    assert contents(flow, "solve.a") == [("j", "again")]
    assert contents(say(flow, "solve.a", "2"), "j") == [("solve", "1"), ("solve", "2")]


def test_teams_stand_in_teams() -> None:
    middle = team_of(("start -> q", "q -> deep", "deep -> done"), "deep", teams={"deep": REVISING})[0]
    plan = plan_of(OUTER, teams={"solve": middle})
    assert plan.agents == ("p", "j", "solve.q", "solve.deep.writer", "solve.deep.critic")
    words = [("p", "x"), ("solve.q", "y"), ("solve.deep.writer", "z"), ("solve.deep.critic", "ok")]
    flow = said_all(plan, *words)
    assert contents(flow, "solve.deep.writer") == [("q", "y")]
    assert contents(flow, "j") == [("solve", "z")]


def test_the_action_of_a_team_within_may_be_the_teams_action() -> None:
    plan = plan_of(("start -> solve", "solve -> done"), "solve", teams={"solve": REVISING})
    assert plan.spec.output == "solve.writer"
    flow = said_all(plan, ("solve.writer", "act"), ("solve.critic", "ok"))
    action = flow.action()
    assert action is not None
    assert action.content == "act"


def test_what_a_team_sends_can_choose_a_route_and_be_handed_out() -> None:
    chooser = inner("start -> a", "a -> done")
    edges = ("start -> solve", "solve -> x when left", "solve -> y when right", "x -> done", "y -> done")
    assert said_all(plan_of(edges, teams={"solve": chooser}), ("solve.a", "right")).ready() == ("y",)
    lister = inner("start -> p", "p -> w map", "w -> done", output="w")
    flow = said_all(plan_of(("start -> s", "s -> v map", "v -> j", "j -> done"), teams={"s": lister}), ("s.p", "a b"))
    flow = say(say(flow, "s.w[1]", "2"), "s.w[0]", "1")
    assert flow.ready() == ("v[0]", "v[1]")
    assert contents(flow, "v[1]") == [("s", "2")]


def test_what_waits_at_the_ends_of_a_team_is_part_of_the_key() -> None:
    edges = ("start -> a", "start -> b", "a -> solve", "b -> solve", "solve -> done")
    plan = plan_of(edges, teams={"solve": inner("start -> x", "x -> done")})
    assert said_all(plan, ("a", "1")).key() != said_all(plan, ("a", "2")).key()


def test_a_team_with_a_team_within_is_flat_and_survives_writing_and_pickling() -> None:
    spec, roles = team_of(OUTER, teams={"solve": REVISING})
    assert spec.teams == {"solve": "solve.writer"}
    assert load_team(yaml.safe_load(yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True)))) == spec
    plan = compile_team(spec, roles)
    copy = pickle.loads(pickle.dumps(plan))
    assert (copy.digest, copy.wiring) == (plan.digest, plan.wiring)
    assert copy.digest != plan_of(OUTER, teams={"solve": inner(*REVISED, output="critic", writer="any")}).digest
    flow = pickle.loads(pickle.dumps(said_all(plan, ("p", "x"))))
    assert flow.ready() == ("solve.writer",)


PAIR = """\
name: pair
roles:
  writer: {type: agent, emits: action}
  critic: {type: verifier}
edges: [start -> writer, writer -> critic, critic -> done when accept, critic -> writer when reject loop 1]
joins: {writer: any}
output: writer
"""
WITHIN = {
    "name": "t",
    "roles": {"judge": {"type": "executor"}},
    "agents": {"solve": {"team": "pair.yaml"}, "other": {"team": "pair.yaml"}, "judge": "judge"},
    "edges": ["start -> solve", "start -> other", "solve -> judge", "other -> judge", "judge -> done"],
    "output": "judge",
}


def written(folder: Path, **files: object) -> Path:
    for name, content in {"pair": PAIR, "t": WITHIN, **files}.items():
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "t.yaml"


def test_a_team_may_live_in_a_file_and_stand_in_another_twice_with_the_same_roles(tmp_path: Path) -> None:
    spec = load_team(written(tmp_path))
    plan = compile_team(spec, build_roles(spec))
    assert list(spec.roles) == ["judge", "writer", "critic"]
    assert plan.agents == ("solve.writer", "solve.critic", "other.writer", "other.critic", "judge")
    assert plan.roles["solve.writer"] is plan.roles["other.writer"]
    assert Flow.start(plan).ready() == ("solve.writer", "other.writer")


def compiled(path: Path) -> TeamPlan:
    spec = load_team(path)
    return compile_team(spec, build_roles(spec))


def refused(folder: Path, **files: object) -> str:
    path = written(folder, **files)
    with pytest.raises(GraphError) as caught:
        compiled(path)
    return str(caught.value)


def test_a_team_cannot_hold_itself(tmp_path: Path) -> None:
    itself = WITHIN | {"agents": {"solve": {"team": "t.yaml"}}}
    assert "t.yaml, stands within itself; a team cannot hold itself" in refused(tmp_path, t=itself)
    between = {**yaml.safe_load(PAIR), "agents": {"writer": "writer", "critic": {"team": "t.yaml"}}}
    assert "t.yaml, stands within itself" in refused(tmp_path, pair=between)
    endless: dict[str, object] = {**WITHIN}
    endless["agents"] = {"solve": {"team": endless}, "judge": "judge"}
    with pytest.raises(GraphError, match=f"at most {MAX_DEPTH} may stand in each other"):
        load_team(endless)
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} teams stand in each other"):
        TeamSpec.model_validate(endless)


def test_teams_stand_in_each_other_to_a_bound() -> None:
    def deep(levels: int) -> TeamSpec:
        team = inner("start -> a", "a -> done")
        for _ in range(levels - 1):
            content = {"agents": {"s": {"team": team}}, "edges": ["start -> s", "s -> done"], "output": "s"}
            team = load_team({"name": "t", "roles": {}} | content)
        return team

    assert deep(MAX_DEPTH).output == ".".join(["s"] * (MAX_DEPTH - 1) + ["a"])
    with pytest.raises(GraphError, match=f"the team of 's' makes more than {MAX_DEPTH} teams stand in each other"):
        deep(MAX_DEPTH + 1)


def test_problems_within_a_team_are_named_with_their_place(tmp_path: Path) -> None:
    assert "pair.yaml is not a team:\n  - unknown key 'joinz'" in refused(tmp_path, pair=PAIR.replace("joins", "joinz"))
    assert "edge 'solve.writer -> solve.critc' leads to the unknown agent 'solve.critc'. Did you mean 'critic'" in (
        refused(tmp_path, pair=PAIR.replace("-> critic,", "-> critc,"))
    )
    assert "agent 'solve.critic' cannot be reached from 'solve.start'" in refused(
        tmp_path, pair=PAIR.replace("writer -> critic", "writer -> done")
    )
    assert "the cycle solve.critic -> solve.writer -> solve.critic has no bound" in refused(
        tmp_path, pair=PAIR.replace(" loop 1", "")
    )
    missing = WITHIN | {"agents": {"solve": {"team": "pear.yaml"}}}
    assert "pear.yaml cannot be read: No such file or directory. Did you mean 'pair.yaml'" in refused(
        tmp_path, t=missing
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"agents": {"solve": {"tem": "pair.yaml"}}}, "agent 'solve' is {'tem': 'pair.yaml'}; write a role's name, or"),
        ({"agents": {"solve": {"team": 3}}}, "the team of 'solve' is 3; a team, or a mapping with its keys"),
        ({"seat": "white", "agents": {"solve": {"team": "seated.yaml"}}}, "plays seat 'black', this one 'white'"),
        (
            {"roles": {"judge": {"type": "executor"}, "critic": {"type": "agent"}}},
            "role 'critic' of the team of 'solve' is another than the role of that name outside it; rename one",
        ),
        ({"edges": [*WITHIN["edges"], "solve -> jduge"]}, "unknown agent 'jduge'. Did you mean 'judge'?"),
        ({"edges": [edge for edge in WITHIN["edges"] if edge != "start -> other"]}, "agent 'other' cannot be reached"),
        (
            {"edges": [*WITHIN["edges"], {"source": "judge", "target": "solve.writer"}]},
            "edge 'judge -> solve.writer' leads into or out of the middle of a team; name the team itself",
        ),
        ({"joins": {"solve": 3}}, "the join of 'solve' needs 3 branches, but there is 1 (start)"),
        ({"output": "solver"}, "'output' names the unknown agent 'solver'"),
    ],
)
def test_a_team_within_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    seated = PAIR + "seat: black\n"
    assert said in refused(tmp_path, t=WITHIN | changes, seated=seated)


def test_what_an_edge_brings_must_be_readable_for_those_who_begin_the_team(tmp_path: Path) -> None:
    deaf = PAIR.replace("emits: action", "emits: action, accepts: [verdict]")
    asked = WITHIN | {
        "roles": {"judge": {"type": "executor"}, "planner": {"type": "planner"}},
        "agents": {"planner": "planner", "solve": {"team": "pair.yaml"}, "judge": "judge"},
        "edges": ["start -> planner", "planner -> solve", "solve -> judge", "judge -> done"],
    }
    assert "edge 'planner -> solve' brings 'plan', which role 'writer' does not accept" in refused(
        tmp_path, t=asked, pair=deaf
    )
    reading = PAIR.replace("emits: action", "emits: action, template: '{from.planner} {from.critic}>'")
    spec = load_team(written(tmp_path, t=asked, pair=reading))
    assert compile_team(spec, build_roles(spec)).agents == ("planner", "solve.writer", "solve.critic", "judge")
    wrong = reading.replace("{from.planner}", "{from.judge}")
    assert "reads {from.judge}, but 'judge' sends it nothing. Possible: 'critic', 'planner'." in refused(
        tmp_path, t=asked, pair=wrong
    )


def test_two_senders_of_one_name_are_refused(tmp_path: Path) -> None:
    asked = WITHIN | {
        "roles": {"judge": {"type": "executor"}, "asking": {"type": "planner"}},
        "agents": {"critic": "asking", "solve": {"team": "pair.yaml"}, "judge": "judge"},
        "edges": ["start -> critic", "critic -> solve", "solve -> judge", "judge -> done"],
    }
    assert "agent 'solve.writer' would hear 'critic' and 'solve.critic' under one name; rename one" in refused(
        tmp_path, t=asked
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.b", "agent 'a.b' has a dot in its name"), ("a[0]", "agent 'a[0]' has a bracket in its name")],
)
def test_names_that_the_framework_makes_are_refused_where_people_write_them(name: str, said: str) -> None:
    edges = [EdgeSpec(source="start", target=name), EdgeSpec(source=name, target="done")]
    spec = TeamSpec(name="t", roles={name: RoleSpec(emits="action")}, edges=tuple(edges), output=name)
    with pytest.raises(GraphError) as caught:
        compile_team(spec, build_roles(spec))
    assert said in str(caught.value)
