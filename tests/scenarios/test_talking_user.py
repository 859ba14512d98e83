"""A user whom a frozen model plays: what it is shown, and where its words go."""

from collections.abc import Callable

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task
from mas.core.messages import joint_action
from mas.core.role import Message, View
from mas.core.scenario import Scenario
from mas.graph import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import build_scenario
from mas.scenarios.help_desk import DeskEnvironment
from mas.scenarios.help_desk.wording import DeskState
from mas.scenarios.simulated_users import User, UserProfile, value_of

GOAL = (("a", "5"), ("b", "0"), ("c", "7"))


def talking(style: str = "letters") -> Scenario:
    return build_scenario(ScenarioOptions(name="help_desk", options={"style": style, "user": "talking"}))


def desk() -> DeskEnvironment:
    """The user wants a5 b0 c7 and does not know b."""
    environment = talking().environment()
    assert isinstance(environment, DeskEnvironment)
    environment.reset(Task("train-0", 0))
    user = User(profile=UserProfile(unsure=("b",)), goal=GOAL)
    environment._state = DeskState(user=user, coworker=environment.state.coworker)
    return environment


def one_turn(environment: DeskEnvironment, team: str, script: Callable[[str, str], str]) -> dict[str, str]:
    """Play one team turn; agent -> the prompt that it was shown."""
    spec = talking().teams[team]
    flow, prompts = Flow.start(compile_team(spec, build_roles(spec))), {}
    while not flow.finished:
        agent = flow.ready()[0]
        messages = tuple(Message(one.sender, one.payload) for one in flow.messages(agent))
        role = flow.plan.roles[agent]
        prompts[agent] = role.prompt(View(observation=environment.observe(agent), messages=messages))
        flow = flow.begin(agent).complete(agent, role.parse(script(agent, prompts[agent])))
    action = flow.action()
    environment.step({"team": action.content if action else ""})
    return prompts


def test_the_words_of_a_frozen_user_reach_the_team_only_as_the_world_shows_them() -> None:
    environment = desk()
    script = {"clerk": "--", "agent": "a", "user": "a4"}
    prompts = one_turn(environment, "team", lambda agent, prompt: script[agent])
    assert prompts == {"clerk": "C...;...>", "agent": "A...;...;-->", "user": "U5?7;;a>"}
    assert environment.observe("agent").fields["notes"] == "4..", "what he said counts, also where he is wrong"
    prompts = one_turn(environment, "team", lambda agent, prompt: {**script, "user": "hm", "agent": "b"}[agent])
    assert prompts["user"] == "U5?7;a;b>", "he said otherwise before"
    assert environment.observe("agent").fields["notes"] == "4..", "what cannot be read is not heard"
    prompts = one_turn(environment, "solo", lambda agent, prompt: {"solo": "a4b", "user": "a5"}[agent])
    assert prompts["user"] == "U5?7;a;a4b>"
    assert environment.observe("solo").fields == {"notes": "5..", "known": "5..", "order": "4..", "mood": "calm"}


@pytest.mark.parametrize("style", ["letters", "words"])
def test_a_talking_user_is_frozen_greedy_and_heard_by_the_world_alone(style: str) -> None:
    for team in talking(style).teams.values():
        user = team.roles["user"]
        assert (user.trainable, user.temperature) == (False, 0)
        assert "user" in team.joint
        assert {edge.target for edge in team.edges if edge.source == "user"} == {"done"}


def test_nobody_else_speaks_for_the_user() -> None:
    environment = desk()
    assert environment.step({"team": "--a"}).illegal == ("team",)
    assert value_of(environment.state.user.told, "a") is None, "no joint action, no user's words"
    assert environment.step({"team": '{"agent": "a", "user": "a5"}'}).illegal == ()
    assert value_of(environment.state.user.told, "a") == "5"


def test_what_the_script_would_not_have_said_is_counted() -> None:
    environment = desk()
    for agent, user in (("a", "a5"), ("b", "b0"), ("c", "--"), ("-", "b?")):
        environment.step({"team": joint_action({"agent": agent, "user": user})})
    # b: he does not know it. c: he says nothing. Then he corrects b, as the script does.
    assert environment.measures()["user_off_script"] == 2.0


def test_tasks_and_the_tiny_base_are_the_same_whoever_speaks_for_the_user() -> None:
    script = build_scenario(ScenarioOptions(name="help_desk"))
    assert script.task("eval", 3) == talking().task("eval", 3)
    assert script.fingerprint() == talking().fingerprint()
