"""Repeated matrix games: payoffs, regret, opponents of habit, and one seat of a game as a world of its own."""

from collections.abc import Mapping
from itertools import product
from math import exp, log
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, EnvironmentSpec, Step, Task
from mas.core.errors import EnvironmentFault
from mas.core.scenario import Scenario, Split
from mas.scenarios import build_scenario
from mas.scenarios.matrix_games import (
    COLUMN,
    GAMES,
    NONE,
    ROW,
    Habit,
    MatrixEnvironment,
    MatrixState,
    best_value,
    by_habit,
    chance_value,
    next_mix,
)
from mas.scenarios.measure import baselines
from mas.scenarios.world import RecordWorld
from mas.scenarios.wrappers import Against
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


def random_policy(environment: Environment, seat: str, random: Random) -> str:
    """Any of the legal actions, each as likely; a pass where they cannot be listed."""
    legal = environment.legal(seat)
    return random.choice(legal) if legal else ""


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
    assert GAMES["rock_paper_scissors"].description(is_row=True).startswith("A against A pays 0, A against B pays -1, ")


def test_habits() -> None:
    rules = GAMES["rock_paper_scissors"]
    played = (("A", "C"), ("B", "A"))
    assert [Habit("pattern", "ABC").next(rules, played[:n]) for n in range(3)] == ["A", "B", "C"]
    assert [Habit("copycat", "CAA").next(rules, played[:n]) for n in range(3)] == ["C", "A", "B"]
    assert [Habit("counter", "CAA").next(rules, played[:n]) for n in range(3)] == ["C", "B", "C"]
    assert Habit("copycat", "BAA").next(rules, ((NONE, "A"),)) == "B"


def test_a_counter_plays_what_pays_itself_most() -> None:
    # In matching pennies column wins where the two differ; what would pay row most is the same again.
    pennies = GAMES["matching_pennies"]
    assert [Habit("counter", "AAA").next(pennies, ((mine, "A"),)) for mine in "AB"] == ["B", "A"]
    for rules, mine in ((game, mine) for game in GAMES.values() for mine in game.actions):
        said = Habit("counter", "AAA").next(rules, ((mine, "A"),))
        assert rules.costs(mine, said) == max(rules.costs(mine, theirs) for theirs in rules.actions)


@pytest.mark.parametrize("name", GAMES)
def test_no_opponent_of_a_held_out_task_plays_like_that_of_a_task_for_training(name: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="matrix_games", options={"game": name}))
    ways = {split: {_way(scenario, split, index) for index in range(40)} for split in ("train", "eval")}
    assert not ways["train"] & ways["eval"]


def _way(scenario: Scenario, split: Split, index: int) -> tuple[int, tuple[str, ...]]:
    """The rounds of a task, and the opponent's actions against row's A, B, A, ... and against its B, A, B, ..."""
    environment, said = scenario.environment(), list[str]()
    for first in "AB":
        environment.reset(scenario.task(split, index))
        while environment.to_move():
            environment.step({"team": "AB"[(first == "B") ^ len(environment.game.state.rounds) % 2]})
        said += [column for _, column in environment.game.state.rounds]
    return environment.game.state.total, tuple(said)


def test_the_best_play_against_a_copycat_looks_ahead() -> None:
    rules = GAMES["prisoners_dilemma"]
    state = MatrixState(Habit("copycat", "AAA"), 4)
    # Silence is answered with silence, so only the last round is for betrayal: 0.6, 0.6, 0.6, 1.0.
    assert best_value(rules, state) == pytest.approx((3 * 0.6 + 1.0) / 4)
    # The first round is against silence: 0.6 or 1.0. In the others both actions of both are as likely.
    assert chance_value(rules, state) == pytest.approx((0.8 + 3 * (0.6 + 0.0 + 1.0 + 0.2) / 4) / 4)


def after(name: str, rounds: list[tuple[str, str]]) -> MatrixEnvironment:
    environment = MatrixEnvironment(name)
    environment._state = MatrixState(Habit("pattern", "ABA"), len(rounds), tuple(rounds))
    return environment


def test_regret_of_known_play() -> None:
    always = after("rock_paper_scissors", [("A", "A")] * 10).measures()
    assert always == {"regret_row": 1, "regret_column": 1}, "paper would have won every round, for either"
    # Row wins each round, which no single action does; column would have been even with any one.
    winning = after("rock_paper_scissors", [("B", "A"), ("C", "B"), ("A", "C")]).measures()
    assert winning == {"regret_row": -1, "regret_column": 1}
    chicken = after("chicken", [("B", "A"), ("B", "B")]).measures()
    assert chicken == pytest.approx({"regret_row": 0, "regret_column": 0.1}), "column should not have dared"
    assert after("chicken", []).measures() == {}
    # No legal move is paid as the worst one, and regretted.
    assert after("prisoners_dilemma", [(NONE, "A")]).measures()["regret_row"] == pytest.approx(1 - 0.6)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("opponent", ["hedge", "regret_matching"])
def test_a_learner_plays_what_its_regrets_say(name: str, opponent: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="matrix_games", options={"game": name, "opponent": opponent}))
    for index in range(6):
        environment, random = scenario.environment(), Random(index)
        environment.reset(scenario.task("eval", index))
        game = environment.game
        while environment.to_move():
            coming, mix = environment.coming(COLUMN), next_mix(game, COLUMN, opponent)
            assert mix[game.rules.actions.index(coming)] > 0
            environment.step({"team": random.choice(game.rules.actions)})
            assert game.state.rounds[-1][1] == coming
        regret = environment.measures()["regret_row"]
        assert environment.success() == (regret <= 1e-9)


def test_learners_turn_from_what_loses() -> None:
    rules = GAMES["rock_paper_scissors"]
    game = after("rock_paper_scissors", [("A", "C")] * 3)
    assert regretted(game).tolist() == [1 / 3, 2 / 3, 0], "rock would have been even, paper would have won"
    hedged = next_mix(game, COLUMN, "hedge")
    assert hedged.argmax() == rules.actions.index("B")
    step = (8 * log(3) / 3) ** 0.5 / 2
    assert hedged[1] / hedged[0] == pytest.approx(exp(3 * step))
    assert next_mix(game, ROW, "hedge").argmax() == 0, "row goes on with what wins"
    assert next_mix(after("chicken", []), ROW, "regret_matching") == pytest.approx([0.5, 0.5])


def regretted(game: MatrixEnvironment) -> Any:
    return next_mix(game, COLUMN, "regret_matching")


@pytest.mark.parametrize("opponent", ["hedge", "regret_matching"])
def test_the_best_reply_to_a_learner_beats_play_by_chance(opponent: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="matrix_games", options={"opponent": opponent}))
    by_chance, expert = baselines(scenario, 100, 0)
    assert expert.success > by_chance.success + 0.2
    assert expert.measures["regret_row"] < by_chance.measures["regret_row"] - 0.2


def test_another_opponent_leaves_the_tasks_of_habit_as_they_were() -> None:
    plain = build_scenario(ScenarioOptions(name="matrix_games"))
    habit = build_scenario(ScenarioOptions(name="matrix_games", options={"opponent": "habit"}))
    hedge = build_scenario(ScenarioOptions(name="matrix_games", options={"opponent": "hedge"}))
    assert plain.fingerprint() == habit.fingerprint() != hedge.fingerprint()
    assert plain.options_key == '{"game":"rock_paper_scissors","skill":0.4}'


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
