"""`refine`: questions with one answer, and a team in which the last word is the refiner's."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Task
from mas.core.messages import Action, Failure, Feedback, Note
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.refine import (
    VIEWS,
    RefineEnvironment,
    RefineQuestion,
    RefineReward,
    RefineState,
    demonstrations,
    expert,
    make,
)
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="refine", options=options))


class TestDigit(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(VIEWS, frozenset({"question"}))
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestExtreme(TestDigit):
    options: Mapping[str, Any] = {"style": "extreme", "operands": 4}


class TestNumber(TestDigit):
    options: Mapping[str, Any] = SCENARIOS["refine"].sizes["large"]


def world(question: RefineQuestion, style: Any) -> RefineEnvironment:
    environment = RefineEnvironment(style, 2)
    environment._state = RefineState(question)
    return environment


def test_digits_are_computed_modulo_ten() -> None:
    answers = {(q := make(Random(seed), "digit", 2)).text: q.answer for seed in range(3000)}
    assert len(answers) == 80
    for left, right in product(range(10), range(4)):
        assert answers[f"{left}+{right}"] == str((left + right) % 10)
        assert answers[f"{left}-{right}"] == str((left - right) % 10)


def test_an_extreme_question_asks_for_the_largest_or_the_smallest_of_its_digits() -> None:
    answers = {(q := make(Random(seed), "extreme", 2)).text: q.answer for seed in range(3000)}
    assert len(answers) == 200
    for left, right in product(range(10), range(10)):
        assert answers[f"max{left}{right}"] == str(max(left, right))
        assert answers[f"min{left}{right}"] == str(min(left, right))


def test_no_extreme_question_that_is_held_out_is_demonstrated() -> None:
    scenario = scenario_of(style="extreme", operands=4)
    assert isinstance(scenario, FolderScenario)
    for is_expert in (True, False):
        stream = scenario.demonstrations(0, expert=is_expert)
        shown = {next(stream)[0][1:].partition(";")[0].rstrip(">") for _ in range(4000)}
        assert len(shown) > 800
        assert not any(scenario.holds_out(text) for text in shown)
    held_out = {scenario.content_of(scenario.task("eval", index)) for index in range(100)}
    assert all(scenario.holds_out(text) for text in held_out)
    assert len(held_out) > 95


def test_a_peer_knows_its_subject_and_a_leader_repeats_either() -> None:
    stream = scenario_of(style="extreme", operands=4, skill=0.8).demonstrations(0, expert=False)
    right: dict[tuple[str, str], list[bool]] = defaultdict(list)
    repeated = []
    for _ in range(4000):
        (ask, first), (_, second), (heard, leader), (_, alone) = (next(stream) for _ in range(4))
        subject, digits = ask[1:4], ask[4:8]
        assert heard == f"S{subject}{digits};{first}{second}>"
        answer = (max if subject == "max" else min)(digits)
        for name, said in (("first", first), ("second", second), ("alone", alone)):
            right[name, subject].append(said == answer)
        assert leader in (first, second)
        if first != second:
            repeated.append(leader == first)
    # Any of four digits is as large as the largest with 0.1·(0.1^3 + 0.2^3 + ... + 1^3) = 0.3025: so often is right who
    # guesses, and 0.8 + 0.2·0.3025 = 0.86 who knows. Of 2000 draws, 0.05 are four standard deviations.
    knows, guesses = pytest.approx(0.86, abs=0.05), pytest.approx(0.3025, abs=0.05)
    assert (fmean(right["first", "max"]), fmean(right["first", "min"])) == (knows, guesses)
    assert (fmean(right["second", "max"]), fmean(right["second", "min"])) == (guesses, knows)
    assert fmean(right["alone", "max"]) == guesses
    assert fmean(repeated) == pytest.approx(0.5, abs=0.05)


def test_numbers_are_computed_from_the_left() -> None:
    for seed in range(300):
        question = make(Random(seed), "number", 4)
        value, rest = 0, question.text.replace("(", "").replace(")", "")
        signs = [character for character in rest if character in "+-*"]
        numbers = [int(part) for part in rest.replace("+", " ").replace("-", " ").replace("*", " ").split()]
        assert len(numbers) == 4
        assert all(0 <= number <= 99 for number in numbers)
        for sign, number in zip(["+", *signs], numbers, strict=True):
            value = value + number if sign == "+" else value - number if sign == "-" else value * number
        assert question.answer == str(value)
    assert make(Random(1), "number", 3).text.startswith("(")


@pytest.mark.parametrize("options", [*SCENARIOS["refine"].sizes.values(), {"style": "extreme", "operands": 4}])
def test_the_expert_is_always_right(options: dict[str, Any]) -> None:
    scenario = scenario_of(**options)
    for index in range(50):
        environment = scenario.environment()
        assert isinstance(environment, RefineEnvironment)
        environment.reset(scenario.task("eval", index))
        assert environment.step(expert(environment, Random(0))).rewards["team"] == {"right": 1.0}


@pytest.mark.parametrize("answer", ["x", "17", "-7", "7\n", " 7", "", "7" * 5000, "\x00", "٧", "²"])
def test_what_is_not_the_digit_is_not_paid(answer: str) -> None:
    environment = world(RefineQuestion("9+8", "7"), "digit")
    step = environment.step({"team": answer})
    assert step.illegal == (() if answer == "" else ("team",))
    assert step.rewards["team"] == {"right": 0.0}


@pytest.mark.parametrize(
    ("answer", "right", "illegal"),
    [
        ("-12", True, False),
        ("-012", True, False),
        ("12", False, False),
        ("-12.0", False, True),
        ("- 12", False, True),
        ("1" * 41, False, True),
        ("1" * 10_000, False, True),
        ("-١٢", False, True),
        ("{}", False, True),
    ],
)
def test_a_number_is_an_integer_of_a_sane_length(answer: str, right: bool, illegal: bool) -> None:
    environment = world(RefineQuestion("3-15", "-12"), "number")
    step = environment.step({"team": answer})
    assert (environment.success(), bool(step.illegal)) == (right, illegal)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First 3*4=12, then 12+3 = 15.", "15"),
        ("-7", "-7"),
        ("so it is -15\n", "-15"),
        ("20-3=17", "17"),
        ("**-5**", "-5"),
        ("I do not know.", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("team", ["team", "solo"])
def test_the_last_number_of_a_text_is_the_answer(team: str, text: str, answer: str | None) -> None:
    spec = scenario_of(style="number").teams[team]
    payload = build_roles(spec)[spec.output].parse(text)
    assert isinstance(payload, Failure) if answer is None else payload == Action(text=answer)


def test_the_refiner_hears_answer_and_critique_and_has_the_last_word() -> None:
    team = scenario_of().teams["team"]
    plan = compile_team(team, build_roles(team))
    flow = Flow.start(plan)
    for agent, said in (("generator", Note(text="3")), ("verifier", Feedback(text="n")), ("refiner", Action(text="4"))):
        assert flow.ready() == (agent,)
        flow = flow.begin(agent)
        if agent == "refiner":
            assert [message.payload.content for message in flow.messages(agent)] == ["3", "n"]
        flow = flow.complete(agent, said)
    assert flow.action() == Action(text="4")


@pytest.mark.parametrize("style", ["digit", "number"])
def test_of_a_pair_the_observer_hears_the_pioneer_and_its_answer_counts(style: str) -> None:
    team = scenario_of(style=style).teams["pair"]
    flow = Flow.start(compile_team(team, build_roles(team)))
    for agent, said, heard in (("pioneer", "3", []), ("observer", "4", ["3"])):
        assert flow.ready() == (agent,)
        flow = flow.begin(agent)
        assert [message.payload.content for message in flow.messages(agent)] == heard
        flow = flow.complete(agent, Action(text=said))
    environment = world(RefineQuestion("2+2", "4"), style)
    action = flow.action()
    assert isinstance(action, Action)
    assert environment.step({"team": action.text}).rewards["team"] == {"right": 1.0}
    assert environment.measures() == {"pioneer_success": 0.0}


@pytest.mark.parametrize(
    ("role", "said", "paid"),
    [
        ("pioneer", "4", 1.0),
        ("observer", "3", 0.0),
        ("peer", "4", 1.0),
        ("maximum", "4", 1.0),
        ("minimum", "3", 0.0),
        ("refiner", "4", None),
        ("leader", "4", None),
    ],
)
def test_each_of_a_pair_and_each_peer_is_paid_for_its_own_answer(role: str, said: str, paid: float | None) -> None:
    move = Move(
        agent=role, role=role, environment=world(RefineQuestion("2+2", "4"), "digit"), output=Action(text=said),
        before={}, after={},
    )  # fmt: skip
    assert RefineReward().own(move) == ({} if paid is None else {"answer": paid})
    unread = msgspec.structs.replace(move, output=Failure(cause="unreadable", text="x"))
    assert RefineReward().own(unread) == ({} if paid is None else {"answer": 0.0})


def test_an_expert_s_demonstrations_are_right_in_every_part() -> None:
    stream = demonstrations(Random(0), 1.0, operands=2)
    verdicts = []
    for _ in range(2000):
        prompt, answer = next(stream)
        text, _, said = prompt[1:-1].partition(";")
        left, sign, right = int(text[0]), text[1], int(text[2])
        value = str((left + right if sign == "+" else left - right) % 10)
        if prompt[0] == "V":
            assert answer == ("y" if said == value else "n")
            verdicts.append(answer)
        else:
            assert answer == value
    # Of 400 answers half are right, and one in ten of the others by chance: 0.55, four standard deviations are 0.1.
    assert verdicts.count("y") / len(verdicts) == pytest.approx(0.55, abs=0.1)


def test_ten_thousand_random_steps_raise_nothing() -> None:
    random = Random(0)
    texts = ("", "7", "x", "-3", "\x07", "9" * 3000, "{}", "1e9", "٣", "0" * 40)
    for options in SCENARIOS["refine"].sizes.values():
        scenario = scenario_of(**options)
        environment = scenario.environment()
        tasks = [scenario.task("train", index) for index in range(50)]
        for _ in range(3334):
            environment.reset(random.choice(tasks))
            environment.step({"team": random.choice(texts)})
            assert environment.to_move() == ()
