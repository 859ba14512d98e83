"""Environments whose copies are played again, and foreign code that draws from the global generators."""

import random
from collections.abc import Mapping
from itertools import count

import msgspec
import numpy as np
import pytest

from mas.core.environment import Environment, EnvironmentSpec, Step, Task
from mas.core.errors import EnvironmentFault
from mas.scenarios.bridges.packages import OwnChance
from mas.scenarios.replay import LONGEST, ReplayEnvironment
from mas.testing.environment import EnvironmentContract

SPEC = EnvironmentSpec(
    name="dice", seats=("first", "second"), views=("first", "second"), max_turns=7, terms=("outcome",)
)


class Dice:
    """Foreign code at its worst: it seeds the global generators and draws from them."""

    def __init__(self, seed: int, drift: int = 0) -> None:
        self._chance = OwnChance(seed % 2**32)
        with self._chance:
            random.seed(seed + drift)
            np.random.seed(seed % 2**32)
            self._hidden = [self._roll(), self._roll()]
        self._table = 0
        self._mover = 0
        self._is_over = False

    def to_move(self) -> str | None:
        return None if self._is_over else SPEC.seats[self._mover]

    def act(self, action: str) -> Step:
        seat = SPEC.seats[self._mover]
        if action == "break":
            raise ZeroDivisionError("the dice fell off the table")
        illegal = action not in ("", "roll", "stop")
        if action == "roll":
            with self._chance:
                self._table += self._roll() % 1000 + int(np.random.randint(1000))
        if not illegal:
            self._mover = 1 - self._mover
        self._is_over = action == "stop" or self._table > 4000
        rewards = {seat: {"outcome": 1.0 if seat == "first" else -1.0} for seat in SPEC.seats}
        return Step(rewards=rewards if self._is_over else {seat: {}}, illegal=(seat,) if illegal else ())

    def fields(self, view: str) -> Mapping[str, str]:
        return {"own": str(self._hidden[SPEC.seats.index(view)]), "table": str(self._table)}

    def legal(self) -> tuple[str, ...]:
        return ("roll", "stop")

    def success(self) -> bool:
        return self._is_over

    def render(self) -> str:
        return f"{self._hidden} {self._table}"

    @staticmethod
    def _roll() -> int:
        return random.randrange(10**6)


def started() -> ReplayEnvironment:
    environment = ReplayEnvironment(SPEC, Dice)
    environment.reset(Task(id="train-0", seed=5))
    return environment


class TestReplay(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(SPEC.seats, frozenset({"own", "table"}))

    def make_environment(self) -> Environment:
        return ReplayEnvironment(SPEC, Dice)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


def test_nobody_else_notices_what_a_game_does_to_the_global_generators() -> None:
    random.seed(1)
    np.random.seed(1)
    wanted = [random.random() for _ in range(3)], [float(np.random.random()) for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    seen: tuple[list[float], list[float]] = ([], [])
    environment = started()
    for _ in range(3):
        seen[0].append(random.random())
        seen[1].append(float(np.random.random()))
        environment.step({environment.to_move()[0]: "roll"})
        environment.clone().render()
    assert seen == wanted


def test_the_global_generators_come_back_where_foreign_code_breaks() -> None:
    random.seed(1)
    before = random.getstate()
    chance = OwnChance(3)

    def fall() -> None:
        with chance:
            random.seed(2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fall()
    assert random.getstate() == before
    with chance:
        assert random.getstate() == random.Random(2).getstate()


def test_a_game_that_does_not_repeat_itself_is_found_out() -> None:
    drift = count()
    environment = ReplayEnvironment(SPEC, lambda seed: Dice(seed, next(drift)))
    environment.reset(Task(id="train-0", seed=5))
    environment.step({"first": "roll"})
    with pytest.raises(EnvironmentFault, match="dice, seed 5: 1 actions played again showed something else"):
        environment.clone().to_move()
    with pytest.raises(EnvironmentFault, match="played again"):
        environment.restore(environment.snapshot())
    assert environment.to_move() == ("second",)


def test_a_snapshot_that_was_changed_is_refused() -> None:
    environment = started()
    environment.step({"first": "roll"})
    whole = msgspec.json.decode(environment.snapshot())
    for change, words in (
        ({"actions": ["roll", "roll"]}, "played again"),
        ({"seed": 6}, "played again"),
        ({"name": "cards"}, "a snapshot of cards after 1 actions is none of dice"),
        ({"actions": ["roll"] * 8}, "ends after 7 at the latest"),
        ({"actions": 3}, "this is no snapshot of dice"),
    ):
        with pytest.raises(EnvironmentFault, match=words):
            environment.restore(msgspec.json.encode(whole | change))
        assert environment.to_move() == ("second",)


@pytest.mark.parametrize("hostile", ["x" * (LONGEST + 1), "roll\x00", "\x1b[2J", "\ud800", "roll\r"])
def test_a_text_that_no_game_should_see_is_illegal_and_reaches_it_as_a_pass(hostile: str) -> None:
    environment, passed = started(), started()
    assert environment.step({"first": hostile}).illegal == ("first",)
    assert passed.step({"first": ""}).illegal == ()
    assert environment.snapshot() == passed.snapshot()
    assert environment.clone().render() == passed.render()


def test_a_game_that_breaks_says_at_what_and_goes_on_from_before() -> None:
    environment = started()
    before = environment.render()
    with pytest.raises(EnvironmentFault, match="dice: the game broke at 'break': ZeroDivisionError: the dice fell off"):
        environment.step({"first": "break"})
    assert environment.render() == before
    assert environment.step({"first": "stop"}).rewards == {"first": {"outcome": 1.0}, "second": {"outcome": -1.0}}


def test_a_game_without_an_end_is_cut_off_without_an_outcome() -> None:
    environment = started()
    for _ in range(SPEC.max_turns):
        step = environment.step({environment.to_move()[0]: ""})
        assert [*step.rewards.values()] == [{}]
    assert environment.to_move() == ()
    assert environment.clone().to_move() == ()
    assert environment.legal("first") == ()
    assert not environment.success()


def test_an_unknown_seat_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match=r"dice has no seat 'frist'. Did you mean 'first'"):
        started().legal("frist")
