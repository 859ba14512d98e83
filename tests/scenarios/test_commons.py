"""`commons`: fish that regrow, neighbours, the best that can be caught, and no trick that pays."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure
from mas.core.scenario import Scenario
from mas.roles import build_roles
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.commons import (
    CommonsEnvironment,
    CommonsReward,
    CommonsState,
    Lake,
    LakeRules,
    after,
    best_keep,
    catches,
    demonstrations,
    expert,
    landed,
    neighbours_take,
    regrown,
)
from mas.scenarios.shares import gini, written
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

RULES = LakeRules(harvesters=("east", "west"), capacity=9, floor=2, limit=4, rounds=4)
Policy = Callable[[CommonsEnvironment], str]


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="commons", options=options))


def begun(task: Task, **options: Any) -> CommonsEnvironment:
    environment = scenario_of(**options).environment()
    assert isinstance(environment, CommonsEnvironment)
    environment.reset(task)
    return environment


def world(lake: Lake, style: Any = "digits", rules: LakeRules = RULES) -> CommonsEnvironment:
    environment = CommonsEnvironment(rules, style)
    environment._state = CommonsState(lake=lake, stock=lake.stock, caught=(0,) * len(rules.harvesters))
    return environment


def earn(environment: CommonsEnvironment, policy: Policy) -> float:
    """The sum of all that is paid until the end."""
    total = 0.0
    while environment.to_move():
        total += sum(environment.step({"team": policy(environment)}).rewards["team"].values())
    return total


def best(environment: CommonsEnvironment) -> str:
    return expert(environment, Random(0))["team"]


class TestDigits(EnvironmentContract):
    options: Mapping[str, Any] = {}

    @property
    def privacy(self) -> Mapping[str, frozenset[str]]:
        boats = {name: frozenset({"stock"}) for name in ("east", "west")}
        return {"adviser": frozenset({"growth", "neighbours"}), **boats}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestWords(TestDigits):
    options: Mapping[str, Any] = {"style": "words", "capacity": 12, "rounds": 3, "crowd": 2}


class TestCommonsReward(RewardContract):
    def make_reward(self) -> Reward:
        return CommonsReward()

    def moves(self) -> Iterable[Move]:
        environment = world(Lake(8, (2, 2, 2), "none"))
        for role in ("adviser", "east", "west", "solo"):
            for output in (Action(text="4"), Action(text="0"), Action(text="²"), Failure(text="?", cause="x")):
                yield Move(agent=role, role=role, environment=environment, output=output, before={}, after={})


def test_fish_regrow_up_to_the_growth_and_the_lake_and_die_out_below_the_floor() -> None:
    # left + min(left, growth), at most 9; fewer than 2 die out.
    assert [regrown(RULES, left, 3) for left in range(10)] == [0, 0, 4, 6, 7, 8, 9, 9, 9, 9]


def test_neighbours_do_what_their_name_says() -> None:
    # A quarter and a half of the limit of 4; a conditional one the mean of two boats, rounded up.
    def takes(kind: Any, rest: int, taken: int) -> int:
        return neighbours_take(RULES, kind, rest, 3, taken)

    assert [takes("none", rest, 4) for rest in range(6)] == [0] * 6
    assert [takes("cooperator", rest, 4) for rest in range(6)] == [0, 0, 0, 0, 1, 1]
    assert [takes("greedy", rest, 4) for rest in range(6)] == [0, 1, 2, 2, 2, 2]
    assert [takes("conditional", 5, taken) for taken in range(6)] == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("demands", "stock", "got"),
    [((4, 4), 9, (4, 4)), ((4, 4), 5, (3, 2)), ((1, 4), 4, (1, 3)), ((0, 4), 2, (0, 2)), ((4, 4), 0, (0, 0))],
)
def test_scarce_fish_are_shared_out_one_by_one(demands: tuple[int, ...], stock: int, got: tuple[int, ...]) -> None:
    assert landed(demands, stock) == got


def test_no_joint_play_catches_more_than_the_plan_says_and_the_expert_catches_as_much() -> None:
    def most(environment: CommonsEnvironment) -> int:
        if not environment.to_move():
            return sum(environment.state.caught)
        found = 0
        for action in environment.legal("team") or ():
            clone = environment.clone()
            clone.step({"team": action})
            found = max(found, most(clone))
        return found

    for index in range(12):
        environment = begun(scenario_of(rounds=2).task("train", index), rounds=2)
        promised = environment.plan.values[0][environment.state.stock]
        assert most(environment) == promised
        assert earn(environment, best) == pytest.approx(0)
        assert sum(environment.state.caught) == promised


def test_the_best_of_a_whole_season_is_what_pencil_and_paper_say() -> None:
    # Alone, with a growth of 2: leave 2, 4 are there; three times over, then take all: 8 - 2 + 2 + 2 + 4 = 14.
    assert world(Lake(8, (2, 2, 2), "none")).plan.values[0][8] == 14
    # With room for one birth a greedy neighbour, who takes 2, is not worth waiting for: take all 8 at once.
    assert world(Lake(8, (1, 1, 1), "greedy")).plan.best[0][8] == (8,)


@pytest.mark.parametrize("options", SCENARIOS["commons"].sizes.values())
def test_rewards_are_the_efficiency_less_one(options: dict[str, Any]) -> None:
    for index in range(10):
        environment = begun(scenario_of(**options).task("eval", index), **options)
        actions = environment.legal("team") or ("",)
        drawn = iter(Random(index).choices(actions, k=12))
        earned = earn(environment, lambda _, drawn=drawn: next(drawn))
        measures = environment.measures()
        assert earned == pytest.approx(measures["efficiency"] - 1)
        assert environment.success() is (measures["efficiency"] >= 0.9)
        assert all(0 <= value <= 1 for value in measures.values())


TRICKS: dict[str, Policy] = {
    "idle": lambda environment: "",
    "bumping": lambda environment: "99",
    "greedy": lambda environment: "44",
    "moderate": lambda environment: "22",
    "alone": lambda environment: "40",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_earns_what_the_expert_earns(trick: str) -> None:
    tasks = [scenario_of().task("train", index) for index in range(100)]
    earned = [earn(begun(task), TRICKS[trick]) for task in tasks]
    assert max(earned) <= 1e-9
    assert sum(earned) / 100 < -0.3
    assert all(abs(earn(begun(task), best)) < 1e-9 for task in tasks)


def test_measures_tell_who_survived_and_who_shared() -> None:
    environment = world(Lake(8, (2, 2, 2), "none"))
    earn(environment, TRICKS["greedy"])
    assert environment.measures() == {"survival": 0.25, "efficiency": pytest.approx(8 / 14), "equality": 1.0}
    environment = world(Lake(8, (2, 2, 2), "none"))
    earn(environment, TRICKS["alone"])
    # East alone takes 4, 4, 4 and 4 of 8, 6, 4 and 0; two boats with x and 0 have a Gini of 1/2.
    assert environment.state.caught == (12, 0)
    assert environment.measures() == {"survival": 0.75, "efficiency": pytest.approx(12 / 14), "equality": 0.5}
    assert gini((1, 2, 3)) == pytest.approx(8 / 36)


def test_a_harvester_is_fined_for_more_than_its_part_and_never_paid() -> None:
    # The best total of the first season is 6, so 3 each.
    environment = world(Lake(8, (2, 2, 2), "none"))
    assert environment.plan.best[0][8][-1] == 6
    paid = []
    for text in ("0", "3", "4"):
        move = Move(agent="east", role="east", environment=environment, output=Action(text=text), before={}, after={})
        paid.append(CommonsReward().own(move)["excess"])
    assert paid == [0.0, 0.0, -0.25]


@pytest.mark.parametrize(
    ("action", "caught", "legal"),
    [
        ("31", (3, 1), True),
        ('{"east": "3", "west": "1"}', (3, 1), True),
        ('{"west": "4"}', (0, 4), True),
        ('{"east": "5", "west": "1"}', (0, 1), False),
        ('{"east": "-1", "west": "1"}', (0, 1), False),
        ('{"north": "1"}', (0, 0), False),
        ("3", (0, 0), False),
        ("٣1", (0, 1), False),
        ("", (0, 0), True),
    ],
)
def test_the_joint_catch_is_read_from_json_and_from_digits(action: str, caught: tuple[int, ...], legal: bool) -> None:
    environment = world(Lake(8, (2, 2, 2), "none"))
    step = environment.step({"team": action})
    assert (environment.state.caught, step.illegal) == (caught, () if legal else ("team",))
    assert environment.state.season == 1


def test_in_words_a_boat_says_its_number_first_and_a_leader_of_all_has_the_numbers_last() -> None:
    scenario = scenario_of(style="words", capacity=30)
    environment = begun(scenario.task("eval", 0), style="words", capacity=30)
    environment.step({"team": "2 0 3"})
    assert environment.state.caught == (2, 0, 3)
    boat = build_roles(scenario.teams["team"])["north"]
    assert boat.parse(" 7 of the 37 fish.") == Action(text="7")
    assert isinstance(boat.parse("all of them"), Failure)
    solo = build_roles(scenario.teams["solo"])["solo"]
    assert solo.parse("So 21 of 37: 7 7 7.") == Action(text="7 7 7")


def test_an_adviser_who_does_not_see_the_fish_and_boats_that_see_nothing_else_nearly_reach_the_best() -> None:
    total = 0.0
    for index in range(200):
        environment = begun(scenario_of().task("eval", index))

        def talked(environment: CommonsEnvironment) -> str:
            lake, season = environment.state.lake, environment.state.season
            keep = best_keep(environment.rules, lake.growth[season:], lake.kind)
            said = catches(environment.rules, environment.state.stock, keep)
            return json.dumps(dict(zip(("east", "west"), map(str, said), strict=True)))

        total += 1 + earn(environment, talked)
    assert 0.97 < total / 200 < 1


def test_expert_demonstrations_are_right_and_a_noisy_teacher_s_are_greedy() -> None:
    stream = demonstrations(Random(0), 1.0, rules=RULES)
    for _ in range(400):
        prompt, answer = next(stream)
        stock, _, seen = prompt[1:-1].partition(";")
        if prompt[0] in "EW":
            total = min(8, max(0, int(stock) - int(seen)))
            assert int(answer) == (total + (prompt[0] == "E")) // 2
        if prompt[0] == "S" and seen == "n":
            # The last season, nobody else: all that two boats can carry.
            assert sum(map(int, answer)) == min(8, int(stock))
    stream = demonstrations(Random(0), 0.0, rules=RULES)
    greedy = [answer in ("0", "4", "44") for _, answer in (next(stream) for _ in range(400))]
    assert sum(greedy) > 350


def test_the_dial_is_checked_and_one_kind_of_neighbour_can_be_chosen() -> None:
    with pytest.raises(ConfigError, match="capacity=10 is no digit"):
        scenario_of(capacity=10)
    with pytest.raises(ConfigError, match="crowd=2 cannot be said in digits"):
        scenario_of(crowd=2)
    for index in range(10):
        environment = begun(scenario_of(neighbours="greedy").task("train", index), neighbours="greedy")
        assert environment.state.lake.kind == "greedy"


def test_the_next_stock_depends_on_how_much_was_caught_and_not_on_who_caught_it() -> None:
    lake, stocks = Lake(9, (3, 1, 2), "conditional"), set()
    for east, west in product(range(5), range(5)):
        environment = world(lake)
        environment.step({"team": written((east, west), is_compact=True)})
        stocks.add((east + west, environment.state.stock))
    assert stocks == {(total, after(RULES, lake, 0, 9, total)) for total in range(9)}
