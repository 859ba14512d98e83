"""Repeated matrix games: payoffs, regret, opponents of habit, and one seat of a game as a world of its own."""

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, EnvironmentSpec, Step, Task
from mas.core.errors import EnvironmentFault
from mas.scenarios import build_scenario
from mas.scenarios.against import Against, random_policy
from mas.scenarios.matrix_games.environment import (
    COLUMN,
    NONE,
    ROW,
    Habit,
    MatrixEnvironment,
    MatrixState,
    best_value,
    by_habit,
    chance_value,
)
from mas.scenarios.matrix_games.games import GAMES, external_regret
from mas.scenarios.world import RecordWorld
from mas.testing.environment import EnvironmentContract


class Taken(msgspec.Struct, frozen=True):
    moves: tuple[str, ...] = ()


class TakeTurns(RecordWorld[Taken]):
    """Two players say 1 or 2 in turn, four times in all, and are paid what they say."""

    state_type = Taken

    def __init__(self, seats: tuple[str, str]) -> None:
        super().__init__(EnvironmentSpec(name="turns", seats=seats, views=seats, max_turns=4, terms=("taken",)))

    def initial(self, task: Task) -> Taken:
        return Taken()

    def fields(self, state: Taken, view: str) -> dict[str, str]:
        return {"moves": " ".join(state.moves)}

    def legal(self, seat: str) -> tuple[str, ...]:
        return ("1", "2")

    def moving(self, state: Taken) -> tuple[str, ...]:
        return () if len(state.moves) == 4 else (self.spec.seats[len(state.moves) % 2],)

    def advance(self, state: Taken, actions: Mapping[str, str]) -> tuple[Taken, Step]:
        ((seat, said),) = actions.items()
        return Taken((*state.moves, said)), Step(rewards={seat: {"taken": float(said)}})

    def is_solved(self, state: Taken) -> bool:
        return True

    def render(self) -> str:
        return " ".join(self.state.moves)


ZERO_SUM = ("rock_paper_scissors", "matching_pennies")


class TestTheGame(EnvironmentContract):
    privacy: ClassVar = {ROW: frozenset({"rules", "mine", "theirs"})}
    idle_fails = False

    def make_environment(self) -> Environment:
        return MatrixEnvironment("rock_paper_scissors")

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


class TestOneSeatOfIt(EnvironmentContract):
    def make_environment(self) -> Environment:
        return build_scenario(ScenarioOptions(name="matrix_games")).environment()

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


class TestOneSeatAgainstChance(TestOneSeatOfIt):
    idle_fails = False

    def make_environment(self) -> Environment:
        return Against(MatrixEnvironment("chicken"), COLUMN, {ROW: random_policy}, ("solo",))


@pytest.mark.parametrize("name", GAMES)
def test_the_expert_earns_what_the_best_play_does_and_no_other_play_earns_more(name: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="matrix_games", options={"game": name}))
    for index in range(8):
        environment = scenario.environment()
        environment.reset(scenario.task("eval", index))
        game = environment.game
        best = best_value(game.rules, game.state)
        others = [environment.clone() for _ in range(8)]
        while environment.to_move():
            environment.step(scenario.expert(environment, Random(index)))
        assert environment.earned == pytest.approx(best)
        assert environment.success()
        random = Random(index)
        for other in others:
            while other.to_move():
                other.step({"team": random.choice(other.legal("team"))})
            assert other.earned <= best + 1e-9


@pytest.mark.parametrize("name", ZERO_SUM)
def test_a_zero_sum_game_stays_one_whatever_is_said(name: str) -> None:
    environment, random = MatrixEnvironment(name), Random(0)
    for seed in range(50):
        environment.reset(Task(id="t", seed=seed))
        while seats := environment.to_move():
            step = environment.step({seat: random.choice(["A", "B", "C", "", "no such action"]) for seat in seats})
            assert sum(paid["payoff"] for paid in step.rewards.values()) == 0


@pytest.mark.parametrize("name", GAMES)
def test_nothing_is_gained_by_a_move_that_is_none(name: str) -> None:
    rules, environment = GAMES[name], MatrixEnvironment(name)
    environment.reset(Task(id="t", seed=1))
    for theirs, nonsense in product(rules.actions, ("", "Z", "A" * 100_000, "\x00", "{}")):
        paid = [environment.clone().step({ROW: mine, COLUMN: theirs}).rewards[ROW] for mine in rules.actions]
        none = environment.clone().step({ROW: nonsense, COLUMN: theirs})
        assert none.rewards[ROW]["payoff"] == min(pay["payoff"] for pay in paid)
        assert none.illegal == (() if nonsense == "" else (ROW,))


def test_payoffs_are_those_of_the_games() -> None:
    dilemma, pennies = GAMES["prisoners_dilemma"], GAMES["matching_pennies"]
    assert (dilemma.pays("B", "A"), dilemma.costs("B", "A")) == (1.0, 0.0)
    assert all(pennies.pays(mine, theirs) == -pennies.costs(mine, theirs) for mine, theirs in product("AB", "AB"))
    assert [GAMES["rock_paper_scissors"].best_reply(theirs) for theirs in "ABC"] == ["B", "C", "A"]
    assert GAMES["rock_paper_scissors"].told(is_row=True).startswith("A against A pays 0, A against B pays -1, ")


def test_habits() -> None:
    rules = GAMES["rock_paper_scissors"]
    played = (("A", "C"), ("B", "A"))
    assert [Habit("pattern", "ABC").next(rules, played[:n]) for n in range(3)] == ["A", "B", "C"]
    assert [Habit("copycat", "CAA").next(rules, played[:n]) for n in range(3)] == ["C", "A", "B"]
    assert [Habit("counter", "CAA").next(rules, played[:n]) for n in range(3)] == ["C", "B", "C"]
    assert Habit("copycat", "BAA").next(rules, ((NONE, "A"),)) == "B"


def test_the_best_play_against_a_copycat_looks_ahead() -> None:
    rules = GAMES["prisoners_dilemma"]
    state = MatrixState(Habit("copycat", "AAA"), 4)
    # Silence is answered with silence, so only the last round is for betrayal: 0.6, 0.6, 0.6, 1.0.
    assert best_value(rules, state) == pytest.approx((3 * 0.6 + 1.0) / 4)
    # The first round is against silence: 0.6 or 1.0. In the others both actions of both are as likely.
    assert chance_value(rules, state) == pytest.approx((0.8 + 3 * (0.6 + 0.0 + 1.0 + 0.2) / 4) / 4)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("ABC")), max_size=30), st.randoms())
def test_regret_is_that_of_the_best_single_action(rounds: list[tuple[str, str]], random: Random) -> None:
    game = GAMES["rock_paper_scissors"]
    regret = external_regret(game, rounds)
    always = {mine: external_regret(game, [(mine, theirs) for _, theirs in rounds]) for mine in "ABC"}
    assert min(always.values()) == 0
    paid = sum(game.pays(mine, theirs) for mine, theirs in rounds)
    assert regret == max(sum(game.pays(mine, theirs) for _, theirs in rounds) for mine in "ABC") - paid
    shuffled = random.sample(rounds, len(rounds))
    assert external_regret(game, shuffled) == regret


def test_regret_of_known_play() -> None:
    game = GAMES["rock_paper_scissors"]
    assert external_regret(game, []) == 0
    assert external_regret(game, [("A", "A")] * 10) == 10
    assert external_regret(game, [("B", "A"), ("C", "B"), ("A", "C")]) == -3


def test_an_opponent_in_hiding_is_seen_by_nobody() -> None:
    environment = MatrixEnvironment("rock_paper_scissors")
    seen = set()
    for kind in ("pattern", "copycat", "counter"):
        environment._state = MatrixState(Habit(kind, "ABC"), 6)
        seen |= {str(environment.observe(view).fields) for view in environment.spec.views}
    assert len(seen) == 1


def test_who_plays_whom_must_be_said() -> None:
    game = MatrixEnvironment("chicken")
    with pytest.raises(EnvironmentFault, match=r"no seat 'rwo'\. Did you mean 'row'"):
        Against(game, "rwo", {}, ("solo",))
    with pytest.raises(EnvironmentFault, match="nobody plays column"):
        Against(game, ROW, {}, ("solo",))
    with pytest.raises(EnvironmentFault, match="no snapshot of chicken"):
        Against(game, ROW, {COLUMN: by_habit}, ("solo",)).restore(msgspec.msgpack.encode(1))


def test_a_game_in_turns_is_carried_on_to_the_seat_that_it_is_about() -> None:
    first = Against(TakeTurns(("x", "y")), "x", {"y": random_policy}, ("solo",))
    second = Against(TakeTurns(("x", "y")), "y", {"x": random_policy}, ("solo",))
    for environment in (first, second):
        environment.reset(Task(id="t", seed=3))
        paid = []
        while environment.to_move():
            paid.append(environment.step({"team": "2"}).rewards["team"]["taken"])
        assert environment.earned == sum(paid) == 4
