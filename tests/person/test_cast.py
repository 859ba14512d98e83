"""Who plays what beside a person."""

from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.core.messages import joint_action
from mas.core.scenario import Scenario
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.person.cast import Partners, Recast, recast, with_people
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios.world import expert_of

FREE = {
    "name": "free",
    "roles": {"talker": {"type": "planner"}, "doer": {"type": "executor", "choices": ["0", "1"]}},
    "edges": ["start -> talker", "talker -> doer", "doer -> done"],
    "output": "doer",
}


@pytest.fixture
def scenario() -> Scenario:
    return build_scenario(ScenarioOptions(name="plan_path"))


def begun(scenario: Scenario) -> Any:
    environment: Environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    return environment


def test_roles_that_are_asked_are_nobodys_to_train(scenario: Scenario) -> None:
    team = recast(scenario.teams["team"], ("planner", "verifier"))
    asked = {name for name, role in team.roles.items() if role.voice == "human"}
    assert asked == {"planner", "verifier"}
    assert all(team.roles[name].trainable is (name not in asked) for name in team.roles)
    compile_team(type(team).model_validate(team.model_dump()), build_roles(team))


def test_a_recast_scenario_has_one_team_and_is_otherwise_the_same(scenario: Scenario) -> None:
    team = recast(scenario.teams["team"], ("planner",))
    other = Recast(scenario, team)
    assert isinstance(other, Scenario)
    assert dict(other.teams) == {"team": team}
    assert (other.name, other.fingerprint(), other.reward) == (scenario.name, scenario.fingerprint(), scenario.reward)
    assert other.task("eval", 3) == scenario.task("eval", 3)


def test_a_team_may_itself_leave_a_role_to_people() -> None:
    roles = {**FREE["roles"], "talker": {"type": "planner", "voice": "human", "trainable": False}}
    team = load_team({**FREE, "roles": roles})
    assert with_people(team, ()) == (team, ("talker",))
    assert with_people(team, ("doer",)) == (team, ("doer", "talker"))


def test_a_member_that_shares_its_role_gets_one_of_its_own() -> None:
    team = build_scenario(ScenarioOptions(name="debate")).teams["team"]
    apart, people = with_people(team, ("first",))
    assert people == ("debater (first)",)
    assert apart.members() == {"first": "debater (first)", "second": "debater", "judge": "judge"}
    assert apart.roles["debater (first)"] == team.roles["debater"]
    cast = recast(apart, people)
    assert [role for role in cast.roles if cast.roles[role].voice == "human"] == list(people)
    compile_team(type(cast).model_validate(cast.model_dump()), build_roles(cast))


@pytest.mark.parametrize("wanted", [("debater",), ("debater", "first"), ("first", "debater", "second")])
def test_who_takes_a_role_takes_all_its_members(wanted: tuple[str, ...]) -> None:
    team = build_scenario(ScenarioOptions(name="debate")).teams["team"]
    assert with_people(team, wanted) == (team, ("debater",))


def test_members_that_are_named_one_by_one_are_all_peoples() -> None:
    team = build_scenario(ScenarioOptions(name="debate")).teams["team"]
    apart, people = with_people(team, ("second", "first"))
    members = apart.members()
    assert {members["first"], members["second"]} == set(people)
    assert members["judge"] not in people


def test_who_has_no_choices_cannot_be_played_at_random() -> None:
    environment = begun(build_scenario(ScenarioOptions(name="relay")))
    with pytest.raises(ConfigError, match="nobody can play 'talker' without a model: no choices are declared"):
        Partners(load_team(FREE), ("talker", "doer"), environment, 0, None)
    assert Partners(load_team(FREE), ("doer",), environment, 0, None).roles == {"doer"}


def test_an_experts_team_does_what_the_expert_does_and_verdicts_accept(scenario: Scenario) -> None:
    environment, team = begun(scenario), scenario.teams["team"]
    roles = build_roles(team)
    partners = Partners(team, tuple(roles), environment, 0, expert_of(scenario))
    steps = 0
    while environment.to_move():
        environment.step({"team": partners.answer("executor", roles["executor"])})
        steps += 1
    state = environment.state
    assert environment.success()
    assert steps == state.grid.distances(state.goal)[state.visited[0]]
    assert partners.answer("verifier", roles["verifier"]) == "y"
    assert partners.answer("planner", roles["planner"]).isdigit()


def test_equal_seeds_make_equal_partners(scenario: Scenario) -> None:
    team = scenario.teams["team"]
    planner = build_roles(team)["planner"]

    def heard(seed: int) -> list[str]:
        partners = Partners(team, ("planner",), begun(scenario), seed, None)
        return [partners.answer("planner", planner) for _ in range(20)]

    assert heard(1) == heard(1) != heard(2)


def test_of_members_who_act_together_each_partner_does_its_part_of_what_the_expert_does() -> None:
    both = {
        "name": "both",
        "roles": {"left": {"emits": "action"}, "right": {"type": "executor"}},
        "edges": ["start -> left", "left -> right", "right -> done"],
        "output": "right",
        "joint": ["left", "right"],
    }
    team, world = load_team(both), begun(build_scenario(ScenarioOptions(name="relay")))
    partners = Partners(team, ("left", "right"), world, 0, lambda world, random: {"team": joint_action({"left": "1"})})
    built = build_roles(team)
    assert (partners.answer("left", built["left"]), partners.answer("right", built["right"])) == ("1", "")
    whole = Partners(team, ("left", "right"), world, 0, lambda world, random: {"team": "both at once"})
    with pytest.raises(ConfigError, match="does not say who does what"):
        whole.answer("left", built["left"])
