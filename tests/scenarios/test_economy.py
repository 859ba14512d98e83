"""`economy`: hours, taxes and welfare as the formulas say, and no answer that pays more than the best one."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, read_joint
from mas.core.scenario import Scenario
from mas.roles import build_roles
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.economy import (
    EconomyEnvironment,
    EconomyState,
    Government,
    WorkerReward,
    Workers,
    demonstrate_government,
    demonstrate_workers,
    expert,
    gap,
    rates_by_gap,
)
from mas.scenarios.economy.taxes import (
    Economy,
    TaxRules,
    best_hours,
    best_rate,
    best_whole_hours,
    equality,
    incomes,
    kept,
    surplus,
    welfare,
)
from mas.scenarios.shares import written
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

RULES = TaxRules(people=4, hours=9, low=1, top=9, steps=10, rates=10, eases=5, unit=5)
WORK = {"side": "worker"}
WORDS = {"style": "words", "people": 6}


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="economy", options=options))


def begun(task: Task, **options: Any) -> EconomyEnvironment:
    environment = scenario_of(**options).environment()
    assert isinstance(environment, EconomyEnvironment)
    environment.reset(task)
    return environment


def paid(environment: EconomyEnvironment, action: str) -> float:
    """What an action would earn; the environment stays where it is."""
    return sum(environment.clone().step({"team": action}).rewards["team"].values())


def governed(*wages: int, ease: int) -> Government:
    environment = Government(RULES, "digits")
    environment._state = EconomyState(economy=Economy(wages, ease))
    return environment


def working(*wages: int, ease: int, law: tuple[int, int]) -> Workers:
    environment = Workers(RULES, "digits", False)
    environment._state = EconomyState(economy=Economy(wages, ease), law=law)
    return environment


class TestGovernment(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {"statistician": frozenset({"wages"}), "setter": frozenset({"ease"})}
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestGovernmentInWords(TestGovernment):
    options: Mapping[str, Any] = WORDS


class TestWorkers(TestGovernment):
    own = frozenset({"wage", "ease", "people"})
    privacy: Mapping[str, frozenset[str]] = {"accountant": frozenset({"law"}), "baker": own, "smith": own}
    options: Mapping[str, Any] = WORK


class TestWorkersInWords(TestWorkers):
    options: Mapping[str, Any] = {**WORK, **WORDS, "law": "optimal"}


class TestWorkerReward(RewardContract):
    def make_reward(self) -> Reward:
        return WorkerReward()

    def moves(self) -> Iterable[Move]:
        environment = working(8, 5, 3, 3, ease=5, law=(2, 2))
        for role in ("accountant", "baker", "smith", "solo"):
            for output in (Action(text="5"), Action(text="9"), Action(text="x"), Failure(text="?", cause="x")):
                yield Move(agent=role, role=role, environment=environment, output=output, before={}, after={})


def test_the_best_hours_are_those_of_the_highest_surplus() -> None:
    for ease, net in product(range(1, 6), (0.7, 2.0, 4.5, 9.0)):
        grid = {surplus(RULES, ease, net, step / 1000): step / 1000 for step in range(9001)}
        assert grid[max(grid)] == pytest.approx(best_hours(RULES, ease, net), abs=0.001)
        assert max(grid) <= surplus(RULES, ease, net, best_hours(RULES, ease, net)) + 1e-9
    # With an elasticity of 1 the effort is h²/2, so that the best hours are the net wage; half of 9 kept: 4.5.
    assert best_hours(RULES, 5, 4.5) == pytest.approx(4.5)
    assert best_whole_hours(RULES, 5, 4.6) == 5
    assert best_whole_hours(RULES, 5, 4.5) == 4


def test_one_s_own_part_of_the_revenue_is_kept() -> None:
    # Half is taken, and a quarter of that comes back.
    assert kept(RULES, 5) == pytest.approx(0.625)
    # The whole consumption of one of four, the others' hours given, is highest at the hours of this share.
    others = 30.0

    def consumption(hours: float) -> float:
        income = 8 * hours
        effort = surplus(RULES, 5, 0.0, hours)
        return 0.5 * income + 0.5 * (income + others) / 4 + effort

    grid = [step / 100 for step in range(901)]
    assert max(grid, key=consumption) == pytest.approx(best_hours(RULES, 5, 0.625 * 8), abs=0.01)


def test_equality_and_productivity_are_those_of_the_paper() -> None:
    assert equality(RULES, (5.0, 5.0, 5.0, 5.0), 0) == pytest.approx(1)
    assert equality(RULES, (0.0, 0.0, 0.0, 8.0), 0) == pytest.approx(0)
    # A tax of everything makes all equal; half of it halves the gap: G = 0.75 becomes 0.375, times 4/3.
    assert equality(RULES, (0.0, 0.0, 0.0, 8.0), 10) == pytest.approx(1)
    assert equality(RULES, (0.0, 0.0, 0.0, 8.0), 5) == pytest.approx(0.5)
    economy = Economy((2, 4, 6, 9), 5)
    # Elasticity 1, no tax: hours are the wage, incomes its square.
    assert incomes(RULES, economy, 0) == pytest.approx((4, 16, 36, 81))
    # Pairs differ by 12 + 32 + 77 + 20 + 65 + 45 = 251 in all: G = 2 x 251 / (2 x 4 x 137), times 4/3.
    assert welfare(RULES, economy)[0] == pytest.approx(137 - 251 / 3)


@pytest.mark.parametrize("options", [*SCENARIOS["economy"].sizes.values(), {"people": 5}])
def test_no_rate_earns_more_than_the_expert_s(options: dict[str, Any]) -> None:
    for index in range(20):
        environment = begun(scenario_of(**options).task("eval", index), **options)
        found = [paid(environment, action) for action in environment.legal("team") or ()]
        assert max(found) == pytest.approx(1)
        environment.step(expert(environment, Random(0)))
        assert environment.success()
        assert environment.measures()["efficiency"] == pytest.approx(1)


@pytest.mark.parametrize("law", ["drawn", "optimal"])
def test_no_hours_earn_more_than_the_expert_s(law: str) -> None:
    for index in range(20):
        environment = begun(scenario_of(**WORK, law=law).task("eval", index), **WORK, law=law)
        found = {action: paid(environment, action) for action in environment.legal("team") or ()}
        said = read_joint(expert(environment, Random(0))["team"], environment.members)
        action = written(map(int, (said or {}).values()), is_compact=True)
        assert max(found.values()) == pytest.approx(found[action]) == pytest.approx(1)
        assert min(found.values()) >= -1


def test_members_may_have_any_wage_and_law_and_it_pays_to_work() -> None:
    for options in (WORK, {**WORK, "people": 5}, {**WORK, **WORDS}, {**WORK, **WORDS, "people": 24}):
        environment = scenario_of(**options).environment()
        assert isinstance(environment, Workers)
        rules = environment.rules
        for ease in range(1, rules.eases + 1):
            net = kept(rules, rules.rates - 1) * rules.low
            assert surplus(rules, ease, net, best_whole_hours(rules, ease, net)) > 0


@pytest.mark.parametrize("action", ["", "x", "9", "0", "00", "-1", "5" * 3000, "٣"])
def test_no_fixed_rate_earns_what_the_expert_earns(action: str) -> None:
    earned = [paid(begun(scenario_of().task("train", index)), action) for index in range(200)]
    assert max(earned) <= 1 + 1e-9
    assert fmean(earned) < 0.95
    assert action in ("9", "0") or max(earned) == 0


@pytest.mark.parametrize("action", ["", "xx", "99", "55", "9", '{"baker": "9"}', "00"])
def test_no_fixed_hours_earn_what_the_expert_earns(action: str) -> None:
    earned = [paid(begun(scenario_of(**WORK).task("train", index), **WORK), action) for index in range(200)]
    assert max(earned) <= 1 + 1e-9
    assert fmean(earned) < 0.8


def test_who_can_work_more_easily_is_taxed_less_and_inequality_is_taxed() -> None:
    assert best_rate(RULES, Economy((5, 5, 5, 5), 1)) == 0
    rates = [best_rate(RULES, Economy((1, 2, 5, 9), ease)) for ease in range(1, 6)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1] > 0


def test_measures_tell_what_equality_costs() -> None:
    environment = governed(2, 4, 6, 9, ease=5)
    assert environment.measures() == {}
    environment.step({"team": "0"})
    # See above: G n / (n - 1) = 251 / (3 x 137).
    assert environment.measures()["equality"] == pytest.approx(1 - 251 / 411)
    assert environment.measures()["productivity"] == pytest.approx(1)
    workers = working(8, 4, 2, 2, ease=5, law=(0, 0))
    workers.step({"team": "44"})
    # The baker earns 32 rather than 64, the smith 16 as without a tax, the others 4 each.
    assert workers.measures()["productivity"] == pytest.approx((32 + 16 + 4 + 4) / (64 + 16 + 4 + 4))
    # Surplus of 4 hours at a wage of 8: 32 - 8 = 24 of 64 - 32 = 32; the smith's 4 hours are the best.
    assert workers.measures()["efficiency"] == pytest.approx((24 / 32 + 1) / 2)


def test_a_worker_is_fined_for_what_it_loses_and_never_paid() -> None:
    environment = working(8, 5, 3, 3, ease=5, law=(0, 0))
    fines = {}
    for text in ("8", "4", "0", "x"):
        move = Move(agent="baker", role="baker", environment=environment, output=Action(text=text), before={}, after={})
        fines[text] = WorkerReward().own(move)["regret"]
    assert fines == {"8": 0.0, "4": pytest.approx(-0.25), "0": -1.0, "x": -1.0}


@pytest.mark.parametrize(
    ("action", "hours", "legal"),
    [
        ("53", (5, 3), True),
        ('{"baker": "5", "smith": "3"}', (5, 3), True),
        ('{"smith": "3"}', (0, 3), True),
        ('{"baker": "10", "smith": "3"}', (0, 3), False),
        ('{"miller": "3"}', (0, 0), False),
        ("5", (0, 0), False),
        ("", (0, 0), True),
    ],
)
def test_the_joint_hours_are_read_from_json_and_from_digits(action: str, hours: tuple[int, int], legal: bool) -> None:
    environment = working(8, 5, 3, 3, ease=5, law=(1, 1))
    step = environment.step({"team": action})
    assert (environment.state.answer, step.illegal) == (hours, () if legal else ("team",))


def test_a_team_that_talks_can_nearly_reach_the_best_welfare() -> None:
    rates, shares = rates_by_gap(RULES), []
    for index in range(300):
        environment = begun(scenario_of().task("eval", index))
        economy = environment.state.economy
        shares.append(paid(environment, str(rates[gap(economy), economy.ease])))
    assert 0.99 < fmean(shares) < 1


def test_the_number_that_a_begun_answer_goes_on_with_is_the_answer() -> None:
    setter = build_roles(scenario_of(**WORDS).teams["team"])["setter"]
    assert setter.parse(" 62 %, as the Gini is 0.4 and the response little.") == Action(text="62")
    solo = build_roles(scenario_of(**WORK, **WORDS).teams["solo"])["solo"]
    assert solo.parse("At 60 per hour: 30 25 9.") == Action(text="30 25 9")
    environment = begun(scenario_of(**WORK, **WORDS).task("eval", 0), **WORK, **WORDS)
    said = {"baker": "30", "smith": "25", "miller": "9"}
    assert paid(environment, "30 25 9") == paid(environment, json.dumps(said))


def test_expert_demonstrations_are_right_and_a_noisy_teacher_s_follow_habits() -> None:
    workers = TaxRules(people=4, hours=9, low=2, top=9, steps=10, rates=10, eases=5, unit=5)
    for demonstrate, rules, habits in (
        (demonstrate_government, RULES, "9"),
        (demonstrate_workers, workers, "99"),
    ):
        stream = demonstrate(Random(0), 1.0, rules=rules)
        for prompt, answer in (next(stream) for _ in range(200)):
            if prompt[0] == "A":
                assert int(answer) == int(prompt[1]) + int(prompt[2])
            if prompt[0] in "BM":
                wage, ease, _, rate = list(prompt[1:-1])
                assert int(answer) == best_whole_hours(rules, int(ease), kept(rules, int(rate)) * int(wage))
            if prompt[0] == "S" and rules is RULES:
                wages, _, ease = prompt[1:-1].partition(";")
                assert int(answer) == best_rate(rules, Economy(tuple(map(int, wages)), int(ease)))
        stream = demonstrate(Random(0), 0.0, rules=rules)
        last = [answer == habits for prompt, answer in (next(stream) for _ in range(400)) if prompt[0] == "S"]
        assert sum(last) > 0.8 * len(last)


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="law=drawn is for side=worker"):
        scenario_of(law="drawn")
    with pytest.raises(ConfigError, match="people=6 are too many for digits"):
        scenario_of(people=6)
