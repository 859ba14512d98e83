"""`code_team`: a program and a test at once; hidden tests pay, and no program is run outside the sandbox."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, SandboxError
from mas.core.joint import joint_action
from mas.core.messages import Action, Failure, Payload
from mas.core.reward import Move, Reward
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.code_team import judge
from mas.scenarios.code_team.compact import DIGITS, SIGNS, Compact, program_of, reference, run
from mas.scenarios.code_team.environment import CodeEnvironment, CodeState
from mas.scenarios.code_team.experts import demonstrations
from mas.scenarios.code_team.language import HOLDS, Function
from mas.scenarios.code_team.reward import CodeReward
from mas.scenarios.measure import measure
from mas.scenarios.policies import expert_of
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract
from mas.training.advantages.group import group_advantages

ORACLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["01_at_grpo"]
MEDIUM = SCENARIOS["code_team"].sizes["medium"]
SHOWN = frozenset({"task", "program", "test", "outcome"})
SUM = Function(kind="digit", steps=(("+", 3), ("-", 1)), spec="+3-1", golden=tuple(DIGITS))


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="code_team", options=options))


def world(function: Function, turns: int = 2) -> CodeEnvironment:
    environment = CodeEnvironment(Compact(2), turns)
    environment._state = CodeState(function=function)
    return environment


def act(environment: CodeEnvironment, **said: str) -> float:
    step = environment.step({"team": joint_action(said)})
    assert step.illegal == ()
    return step.rewards["team"]["passed"]


class TestLetters(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(("coder", "tester", "solo"), SHOWN)
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestCodeReward(RewardContract):
    def make_reward(self) -> Reward:
        return CodeReward()

    def moves(self) -> Iterable[Move]:
        said: tuple[Payload, ...] = (
            Action(text="+2"),
            Action(text="13"),
            Action(text="+213"),
            Failure(text="?", cause="?"),
        )
        for role, output in product(("coder", "tester", "solo"), said):
            yield Move(agent=role, role=role, environment=world(SUM), output=output, before={}, after={})


def own(
    role: str, text: str, environment: CodeEnvironment | None = None, before: Mapping[str, Payload] | None = None
) -> Mapping[str, float]:
    output = Action(text=text)
    return CodeReward().own(
        Move(agent=role, role=role, environment=environment or world(SUM), output=output, before=before or {}, after={})
    )


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


def test_own_terms_are_changes_and_judge_the_tester_by_the_reference() -> None:
    assert own("coder", "+2") == {"program": 1.0}
    assert own("coder", "*7")["program"] == pytest.approx(0.2)
    assert own("tester", "13") == {"test": 1.0}
    assert own("tester", "14") == {"test": 0.0}
    assert own("solo", "+214") == {"program": 1.0, "test": 0.0}
    assert own("coder", "nonsense") == {"program": 0.0}


@pytest.mark.parametrize("last", ["", "*1", "*6"])
def test_advantages_are_those_of_at_grpo_in_the_first_turn_and_in_later_ones(last: str) -> None:
    """All terms differ from AT-GRPO's by constants of the group. For 6 x: 5 x = 0 for even digits alone."""
    tripled = Function(kind="digit", steps=(("*", 2), ("*", 3)), spec="*2*3", golden=tuple(DIGITS))
    before = world(tripled, turns=5)
    if last:
        act(before, coder=last, tester="26")
    coder, tester, expected = [], [], []
    for program, test, passed in (("*1", "16", 0.5), ("*6", "15", 1.0), ("+3", "22", 0.0), ("*1", "25", 0.5)):
        after = before.clone()
        team = act(after, coder=program, tester=test)
        assert after.state.share == passed
        coder.append(team + own("coder", program, before)["program"])
        tester.append(team + own("tester", test, before)["test"])
        expected.append(passed + (test in ("16", "22")))
    assert group_advantages(coder, ["one"] * 4) == pytest.approx(ORACLE["coder_adv"], abs=2e-6)
    assert group_advantages(tester, ["one"] * 4) == pytest.approx(group_advantages(expected, ["one"] * 4), abs=2e-6)


def test_own_terms_add_up_to_what_stands_at_the_end_however_long_the_episode_is() -> None:
    texts = {
        "coder": ("+2", "*7", "+3", "", "junk"),
        "tester": ("13", "14", "2x", "", "\ud800"),
        "solo": ("+213", "*714", ""),
    }
    lengths = set()
    for seed in range(300):
        random, environment, totals = (
            Random(seed),
            world(SUM, turns=5),
            dict.fromkeys(("program", "test", "passed"), 0.0),
        )
        speakers = ("solo",) if seed % 3 == 0 else ("coder", "tester")
        while environment.to_move():
            said = {role: random.choice(texts[role]) for role in speakers}
            for role, text in said.items():
                # in a team turn of two visits the first one counts as what was there before
                draft: Mapping[str, Payload] = {role: Action(text=random.choice(texts[role]))} if seed % 2 else {}
                visits = [own(role, one.content, environment) for one in draft.values()]
                for terms in (*visits, own(role, text, environment, draft)):
                    totals = {name: total + terms.get(name, 0.0) for name, total in totals.items()}
            step = environment.step({"team": said["solo"] if "solo" in said else joint_action(said)})
            totals["passed"] += step.rewards["team"]["passed"]
        state = environment.state
        lengths.add(state.turn)
        right = Compact(2).is_right(SUM, state.test)
        assert totals == pytest.approx({"program": state.share, "test": float(right), "passed": state.share})
    assert lengths == {1, 2, 3, 4, 5}


def test_who_tests_honestly_and_revises_earns_more_over_an_episode_than_who_ends_it_at_once() -> None:
    """A program is right one time in five. An honest test is right; the other one is what the program does."""
    earned, solved = dict.fromkeys((True, False), 0.0), dict.fromkeys((True, False), 0)
    for honest, seed in product((True, False), range(1000)):
        random, environment = Random(seed), world(SUM, turns=5)
        while environment.to_move():
            program = "+2" if random.random() < 0.2 else "+3"
            text = f"{program}1{3 if honest else run(program, 1)}"
            own_terms = own("solo", text, environment)
            earned[honest] += sum(own_terms.values()) + environment.step({"team": text}).rewards["team"]["passed"]
        solved[honest] += environment.success()
    # right within five turns: 1 - 0.8^5 = 0.67
    assert (solved[True] > 600, solved[False] < 250) == (True, True)
    assert earned[True] > 2 * earned[False]


def test_a_member_whose_partner_is_not_legal_is_heard_and_paid_once() -> None:
    environment = world(SUM, turns=3)
    for gained in (1.0, 0.0):
        assert own("tester", "13", environment) == {"test": gained}
        assert environment.step({"team": joint_action({"coder": "junk", "tester": "13"})}).illegal == ("team",)
        assert environment.state.test == "13"


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

    monkeypatch.setattr(judge, "probe", missing)
    judge.require_sandbox.cache_clear()
    with pytest.raises(ConfigError, match=r"style=words .* sandbox alone, and there is none here: no walls here"):
        build_scenario(ScenarioOptions(name="code_team", options=MEDIUM)).task("train", 0)
    assert build_scenario(ScenarioOptions(name="code_team")).task("train", 0).split == "train"
