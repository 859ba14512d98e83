"""`math_team`: exact checking, what calls and verdicts pay, and that no trick pays more than solving."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from random import Random

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Payload, Verdict
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.math_team import (
    MathEnvironment,
    MathOptions,
    MathProblem,
    MathReward,
    MathState,
    Milestone,
    make,
)
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract
from mas.tools import calculate

SHOWN = frozenset({"problem", "history"})
LARGE = ScenarioOptions(name="math_team", options=dict(SCENARIOS["math_team"].sizes["large"]))


@cache
def scenario(*, large: bool = False) -> FolderScenario:
    built = build_scenario(LARGE if large else ScenarioOptions(name="math_team"))
    assert isinstance(built, FolderScenario)
    return built


class TestMathTeam(EnvironmentContract):
    large = False
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(("solver", "verifier", "solo"), SHOWN)

    def make_environment(self) -> Environment:
        return scenario(large=self.large).environment()

    def task(self, number: int) -> Task:
        return scenario(large=self.large).task("train", number)


class TestLargeMathTeam(TestMathTeam):
    large = True


def world(*, compact: bool = True) -> MathEnvironment:
    """(3+4)*2: 7, then 14, of which the compact form keeps 4."""
    environment = MathEnvironment(MathOptions(calls="compact" if compact else "json"))
    if compact:
        milestones = (Milestone("7", ("3+4", "4+3")), Milestone("4", ("7*2", "2*7")))
    else:
        milestones = (Milestone("7"), Milestone("14"))
    environment._state = MathState(MathProblem("(3+4)*2", milestones))
    return environment


class TestMathReward(RewardContract):
    def make_reward(self) -> Reward:
        return MathReward()

    def moves(self) -> Iterable[Move]:
        failure = Failure(text="?!", cause="nonsense")
        proposals: list[Payload] = [Action(text=text) for text in ("3+4", "=4.", "=5.", "")]
        for role in ("solver", "solo", "verifier"):
            for output in (*proposals, Verdict(text="y", accept=True), Verdict(text="n", accept=False), failure):
                for before in ({}, {"solver": proposals[0]}, {"solver": failure}):
                    yield Move(agent=role, role=role, environment=world(), output=output, before=before, after={})


def play(environment: MathEnvironment, actions: Iterable[str]) -> list[dict[str, float]]:
    return [dict(environment.step({"team": action}).rewards["team"]) for action in actions]


def test_calls_lead_to_the_answer_and_are_paid_once() -> None:
    environment = world()
    # Two milestones: 0.5 / 2 each. The same call again leads nowhere.
    paid = play(environment, ["4+3", "3+4", "7*2", "=4."])
    assert paid == [{"progress": 0.25}, {"waste": -0.1}, {"progress": 0.25}, {"right": 1.0}]
    assert environment.success()
    assert environment.observe("verifier").fields == {"problem": "(3+4)*2", "history": "774"}


def test_a_call_that_reaches_the_end_at_once_is_paid_for_the_whole_way() -> None:
    environment = world(compact=False)
    call = '{"name": "calculator", "arguments": {"expression": "(3 + 4) * 2"}}'
    assert play(environment, [call, "28/2"]) == [{"progress": 0.5}, {"right": 1.0}]
    assert environment.success()
    assert environment.observe("solver").fields["history"] == f"{call} -> 14"


def test_a_lucky_result_of_another_call_is_no_progress_in_compact_form() -> None:
    assert play(world(), ["2*2"]) == [{"waste": -0.1}]


@pytest.mark.parametrize("seed", range(60))
def test_small_answers_are_right_modulo_ten(seed: int) -> None:
    problem = make(Random(seed), MathOptions())
    if "=" in problem.text:
        left, right = problem.text.replace("x", problem.answer).split("=")
        assert calculate(left) % 10 == calculate(right)
    else:
        assert calculate(problem.text) % 10 == int(problem.answer)


@pytest.mark.parametrize("seed", range(60))
def test_large_answers_are_exact(seed: int) -> None:
    problem = make(Random(seed), MathOptions(calls="json", operations=8, numbers=99))
    if problem.text.startswith("Calculate"):
        assert calculate(problem.text.removeprefix("Calculate ").rstrip(".")) == calculate(problem.answer)
    else:
        both = re.fullmatch(r"Solve (.*) for x\.", problem.text)
        assert both is not None
        left, right = both[1].replace("x", f"({problem.answer})").split("=")
        assert calculate(left) == calculate(right)


HOSTILE = (
    " ", "\x00", "3+", "3+4+5", "3/4/5", "٣+٤", "=x.", "==4", "9" * 100_000, "[" * 50_000, "\ud800",
    '{"name": "calculator"', '{"name": "calculator", "arguments": {}}',
    '{"name": "calculator", "arguments": {"expression": "9**9**9"}}',
    '{"name": "calculator", "arguments": {"expression": "1/0"}}', '{"name": "shell", "arguments": {"expression": "1"}}',
)  # fmt: skip


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("action", HOSTILE)
def test_hostile_actions_are_refused_and_recorded(action: str, compact: bool) -> None:
    environment = world(compact=compact)
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {"waste": -0.1}
    ((shown, result),) = environment.state.history
    assert result.startswith("!")
    assert max(len(shown), len(result)) <= 200
    assert environment.to_move() == ("team",)
    again = world(compact=compact)
    again.restore(environment.snapshot())
    assert again.state_key() == environment.state_key()


@pytest.mark.parametrize("text", ["14", " 28/2 ", "14.0"])
def test_an_exact_answer_may_be_written_in_any_form(text: str) -> None:
    environment = world(compact=False)
    environment.step({"team": text})
    assert environment.success()


def test_an_answer_that_divides_by_zero_is_no_answer() -> None:
    environment = world(compact=False)
    assert environment.step({"team": "1/0"}).illegal == ("team",)
    assert not environment.success()


def own(role: str, output: Payload, before: Mapping[str, Payload] = {}) -> Mapping[str, float]:
    return MathReward().own(Move(agent=role, role=role, environment=world(), output=output, before=before, after={}))


@pytest.mark.parametrize(
    ("proposal", "sound"), [("3+4", True), ("=4.", True), ("7*2", True), ("3*4", False), ("=7.", False), ("?", False)]
)
def test_proposals_and_verdicts_are_judged_by_what_is_sound(proposal: str, sound: bool) -> None:
    said = Action(text=proposal)
    assert own("solver", said) == own("solo", said) == {"sound": 0.2 if sound else 0.0}
    for accept in (True, False):
        verdict = own("verifier", Verdict(text="", accept=accept), {"solver": said})
        assert verdict == {"verdict": 1.0 if accept == sound else -1.0}


def test_a_failed_verdict_has_no_terms_and_nothing_to_judge_is_to_be_rejected() -> None:
    assert own("verifier", Failure(text="?", cause="nonsense"), {"solver": Action(text="3+4")}) == {}
    assert own("verifier", Verdict(text="n", accept=False)) == {"verdict": 1.0}


Policy = Callable[[MathEnvironment], str]
TRICKS: dict[str, Policy] = {
    "idle": lambda environment: "",
    "call again and again": lambda environment: "1+1" if environment.state.turn % 2 else "2+2",
    "guess": lambda environment: "=0." if environment.state.problem.answer != "0" else "=1.",
    "know it already": lambda environment: f"={environment.state.problem.answer}.",
}


def earn(index: int, policy: Policy) -> tuple[float, bool]:
    environment = scenario().environment()
    assert isinstance(environment, MathEnvironment)
    environment.reset(scenario().task("eval", index))
    total = 0.0
    while environment.to_move():
        total += sum(environment.step({"team": policy(environment)}).rewards["team"].values())
    return total, environment.success()


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_earns_what_the_expert_earns(trick: str) -> None:
    expert = scenario().expert
    assert expert is not None
    for index in range(40):
        # 0.5 for the whole way and 1 for the answer, whatever the problem.
        best, solved = earn(index, lambda environment: expert(environment, Random(0))["team"])
        assert solved
        assert best == pytest.approx(1.5)
        assert earn(index, TRICKS[trick])[0] <= best - 0.5


def test_the_expert_solves_every_large_task() -> None:
    built = scenario(large=True)
    assert built.expert is not None
    environment = built.environment()
    for index in range(60):
        environment.reset(built.task("eval", index))
        while environment.to_move():
            environment.step(built.expert(environment, Random(0)))
        assert environment.success()


@pytest.mark.parametrize("compact", [True, False])
def test_ten_thousand_random_steps_raise_nothing(compact: bool) -> None:
    environment = MathEnvironment(MathOptions(calls="compact" if compact else "json"))
    random, steps, number = Random(0), 0, 0
    while steps < 5_000:
        environment.reset(Task(id=str(number), seed=number % 50))
        number += 1
        while environment.to_move():
            environment.step({"team": "".join(random.choices('0123456789+-*/={}":.()', k=random.randrange(5)))})
            steps += 1


def test_numbers_of_two_digits_need_json() -> None:
    with pytest.raises(ConfigError, match="numbers=10 has no one-character form"):
        build_scenario(ScenarioOptions(name="math_team", options={"numbers": 10}))
