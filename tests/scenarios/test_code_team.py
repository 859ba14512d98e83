"""`code_team`: a program and a test at once; hidden tests pay, and no program is run outside the sandbox."""

from collections.abc import Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
from code_team_parts import SUM, act, world

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, SandboxError
from mas.core.messages import Action
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.code_team import CodeState, demonstrations, worded
from mas.scenarios.code_team.language import DIGITS, HOLDS, SIGNS, Compact, Function, program_of, reference, run
from mas.scenarios.measure import measure
from mas.scenarios.world import expert_of
from mas.testing.environment import EnvironmentContract

MEDIUM = SCENARIOS["code_team"].sizes["medium"]
SHOWN = frozenset({"task", "program", "test", "outcome"})


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="code_team", options=options))


class TestLetters(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(("coder", "tester", "solo"), SHOWN)
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


@pytest.mark.parametrize("count", [2, 3])
def test_the_expert_s_program_is_among_the_best_of_all_programs(count: int) -> None:
    language = Compact(count)
    for seed in range(200):
        function = language.make(Random(seed))
        shares = {sign + digit: language.share(function, sign + digit) for sign, digit in product(SIGNS, DIGITS)}
        assert max(shares.values()) == shares[program_of(function.steps)] == 1.0
        values = [eval_by_hand(function.spec, x) for x in range(10)]
        assert values == [reference(function, x) for x in range(10)]


def eval_by_hand(spec: str, x: int) -> int:
    """From left to right over the integers, modulo 10 at the very end."""
    for sign, digit in zip(spec[::2], spec[1::2], strict=True):
        x = {"+": x + int(digit), "-": x - int(digit), "*": x * int(digit)}[sign]
    return x % 10


def test_equal_programs_in_other_letters_pass_too() -> None:
    assert [x for x in range(10) if run("-8", x) == run("+2", x)] == list(range(10))
    assert act(world(SUM), coder="-8") == 1.0
    # *7 and x + 2 agree where 6 x = 2 modulo 10: for 2 and 7
    assert act(world(SUM), coder="*7") == pytest.approx(0.2)


def test_a_test_that_contradicts_gives_the_team_another_turn_and_agreement_ends_it() -> None:
    environment = world(SUM)
    assert act(environment, coder="+3", tester="13") == 0.0
    assert environment.observe("coder") == environment.observe("tester") == environment.observe("solo")
    seen = environment.observe("coder").fields
    assert (seen["task"], seen["program"], seen["test"]) == ("+3-1", "+3", "13")
    assert act(environment, coder="+2") == 1.0
    assert environment.success()
    assert environment.state.outcome == HOLDS
    assert environment.measures() == {"first_share": 0.0, "right_tests": 1.0}


def test_a_shared_mistake_goes_unnoticed() -> None:
    environment = world(SUM)
    assert act(environment, coder="+3", tester="14") == 0.0
    assert environment.to_move() == ()
    assert not environment.success()
    assert environment.measures() == {"first_share": 0.0, "right_tests": 0.0}


def test_a_right_program_that_is_given_up_costs_what_it_earned() -> None:
    environment = world(SUM)
    assert act(environment, coder="+2", tester="14") == 1.0
    assert act(environment, coder="+3", tester="14") == -1.0
    assert not environment.success()


def test_what_is_not_said_again_stands() -> None:
    environment = world(SUM, turns=3)
    act(environment, coder="+2")
    assert environment.state.outcome == ""
    act(environment, tester="14")
    assert environment.to_move() == ("team",)
    act(environment, tester="13")
    assert environment.to_move() == ()
    assert environment.success()


def swaying(environment: Environment, random: Random) -> Mapping[str, str]:
    """Another program each turn, and a test that it fails."""
    return {"team": "+211" if "+1" in environment.observe("solo").fields["program"] else "+111"}


def test_idle_and_stubborn_teams_earn_less_than_the_expert() -> None:
    scenario = scenario_of()
    expert = expert_of(scenario)
    assert expert is not None
    players = {
        "expert": expert,
        "idle": lambda environment, random: {"team": ""},
        "stubborn": lambda environment, random: {"team": "+111"},
        "swaying": swaying,
    }
    earned = {}
    for name, policy in players.items():
        found = measure(scenario, name, policy, 100, 0)
        assert found is not None
        earned[name] = found.rewards["team"]
    assert earned["expert"] == 1.0
    assert max(value for name, value in earned.items() if name != "expert") < 0.5
    assert earned["idle"] == 0.0


@pytest.mark.parametrize(
    "action", ["+2", "13", "+24", "+203", "+2133", "x213", '{"coder":"+22"}', '{"coder":"","spy":"x"}']
)
def test_what_is_not_in_the_language_spends_the_turn_alone(action: str) -> None:
    environment = world(SUM)
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {"passed": 0.0}
    assert environment.state == CodeState(function=SUM, turn=1)


def test_both_speak_at_once_and_neither_hears_the_other() -> None:
    team = scenario_of().teams["team"]
    flow = Flow.start(compile_team(team, build_roles(team)))
    assert set(flow.ready()) == {"coder", "tester"}
    for agent, said in (("coder", "+2"), ("tester", "13")):
        flow = flow.begin(agent)
        assert flow.messages(agent) == ()
        flow = flow.complete(agent, Action(text=said))
    action = flow.action()
    assert action is not None
    assert world(SUM).heard(action.content) == world(SUM).heard("+213")


def test_an_expert_s_demonstrations_are_right_and_later_turns_follow_a_failed_test() -> None:
    stream, language = demonstrations(Random(0), 1.0, steps=2), Compact(2)
    for _ in range(3000):
        prompt, answer = next(stream)
        spec, _, said = prompt[1:-1].partition(";")
        function = Function(
            kind="digit", steps=((spec[0], int(spec[1])), (spec[2], int(spec[3]))), spec=spec, golden=tuple(DIGITS)
        )
        if prompt[0] != "T":
            assert language.share(function, answer[:2]) == 1.0
        if prompt[0] != "C":
            assert language.is_right(function, answer[-2:])
        assert not said or language.outcome(function, said[:2], said[2:]) != HOLDS


def test_without_a_sandbox_words_are_refused_with_the_reason_and_letters_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise SandboxError("no walls here")

    monkeypatch.setattr(worded, "probe", missing)
    worded.require_sandbox.cache_clear()
    with pytest.raises(ConfigError, match=r"style=words .* sandbox alone, and there is none here: no walls here"):
        build_scenario(ScenarioOptions(name="code_team", options=MEDIUM)).task("train", 0)
    assert build_scenario(ScenarioOptions(name="code_team")).task("train", 0).split == "train"
