"""What the bridges to games share, on games made for it: words, tries, forfeits, records. Needs no other package."""

import json
import subprocess
import sys
from collections.abc import Mapping
from random import Random
from typing import Self

import pytest
from games import GameContract, babble, idle, play, task, totals

from mas.core.errors import ConfigError, EnvironmentFault
from mas.scenarios.bridges import PREFIX, open_bridge
from mas.scenarios.bridges.packages import load_package
from mas.scenarios.game import GameEnvironment
from mas.scenarios.game_rules import LONGEST_ACTION, BridgeRules, Position, find_action, named_actions

SEATS = ("a", "b", "c")


class Draw:
    """Two rounds; three say a number at once, and who is nearest to one below a's gets 1 from each of the others.

    `hidden` is what chance drew last; it matters to nobody.
    """

    def __init__(self, hidden: int, said: tuple[tuple[int, ...], ...] = ()) -> None:
        self.hidden, self.said = hidden, said

    def to_move(self) -> tuple[int, ...]:
        return () if len(self.said) == 2 else (0, 1, 2)

    def legal(self, seat: int) -> Mapping[str, int]:
        return named_actions((number, f"say {number}") for number in range(5))

    def seen(self, seat: int) -> str:
        return f"round {len(self.said)}: {[said[seat] for said in self.said]}"

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        self.said = (*self.said, tuple(actions[seat] for seat in (0, 1, 2)))
        self.hidden = seed % 5

    def totals(self) -> tuple[float, ...]:
        paid = [0.0, 0.0, 0.0]
        for said in self.said:
            best = min(range(3), key=lambda seat: (abs(said[seat] - said[0] + 1), seat))
            paid = [had + (2 if seat == best else -1) for seat, had in enumerate(paid)]
        return tuple(paid)

    def clone(self) -> Self:
        return type(self)(self.hidden, self.said)

    def render(self) -> str:
        return f"{self.hidden} {self.said}"


class Drawn:
    """The game of `Draw`, with payoffs of any kind."""

    def __init__(self, **rules: object) -> None:
        common = {"name": "draw", "seats": SEATS, "payoff": "fixed", "floor": -4.0, "longest": 2}
        self.rules = BridgeRules(**{**common, "dynamics": "simultaneous", **rules})

    def actions(self) -> int:
        return 10

    def begin(self, seed: int) -> Position:
        return Draw(seed % 5)


class TestDrawn(GameContract):
    def make_environment(self) -> GameEnvironment:
        return GameEnvironment(Drawn())


def begun(tries: int = 3, **rules: object) -> GameEnvironment:
    environment = GameEnvironment(Drawn(**rules), tries=tries)
    environment.reset(task(3))
    return environment


def test_who_has_moved_is_not_asked_again_and_nobody_learns_of_it() -> None:
    environment = begun()
    before = {seat: environment.observe(seat) for seat in SEATS}
    step = environment.step({"a": "say 1", "b": "say 9", "c": ""})
    assert step.illegal == ("b",)
    assert step.rewards == {seat: {"payoff": 0.0} for seat in SEATS}
    assert environment.to_move() == ("b", "c")
    assert environment.observe("b").fields == before["b"].fields | {
        "note": "No legal action yet. Tries left before you lose: 2."
    }
    assert environment.observe("a").fields == before["a"].fields | {"legal": ""}
    with pytest.raises(EnvironmentFault, match="to move are"):
        environment.step({"a": "say 2", "b": "say 2", "c": "say 2"})
    environment.step({"b": "say 2", "c": "no"})
    environment.step({"c": "say 3"})
    assert environment.state.moves == ((1, 2, 3),)
    assert environment.state.misses == (0, 0, 0)


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_the_last_try_forfeits_and_a_legal_action_gives_all_tries_back(tries: int) -> None:
    environment = begun(tries)
    for _ in range(tries - 1):
        environment.step(dict.fromkeys(environment.to_move(), ""))
    environment.step(dict.fromkeys(SEATS, "say 1"))
    for missed in range(tries):
        assert environment.to_move() == (SEATS if not missed else ("b",))
        environment.step({seat: "" if seat == "b" else "say 1" for seat in environment.to_move()})
    assert environment.to_move() == ()
    assert environment.forfeited() == ("b",)
    assert "b forfeits" in environment.render()


# The floor is -4, nothing was paid before. Fixed sum 0, b loses: a and c share 4, 2 each; a and b lose: c has 8. Sum 3:
# a and c share 3 + 4, 3.5 each. Shared: all have the floor. Free: the others keep their 0.
@pytest.mark.parametrize(
    ("rules", "losers", "paid"),
    [
        ({}, "b", (2, -4, 2)),
        ({}, "ab", (-4, -4, 8)),
        ({}, "abc", (0, 0, 0)),
        ({"total": 3.0}, "b", (3.5, -4, 3.5)),
        ({"total": 3.0}, "abc", (1, 1, 1)),
        ({"payoff": "shared"}, "b", (-4, -4, -4)),
        ({"payoff": "free"}, "b", (0, -4, 0)),
        ({"payoff": "free"}, "abc", (-4, -4, -4)),
    ],
)
@pytest.mark.parametrize("policy", [idle, babble])
def test_who_forfeits_has_the_floor_and_the_others_what_the_rules_leave(
    rules: Mapping[str, object], losers: str, paid: tuple[float, ...], policy: object
) -> None:
    environment = begun(**rules)
    steps = play(environment, dict.fromkeys(losers, policy), Random(0))
    assert tuple(totals(environment, steps).values()) == paid


def test_a_forfeit_takes_back_what_was_paid_before() -> None:
    environment = begun()
    # All are equally near, so the first is paid. Then it forfeits: from 2 to -4, and the others from -1 to 2 each.
    assert environment.step(dict.fromkeys(SEATS, "say 1")).rewards["a"] == {"payoff": 2.0}
    for _ in range(2):
        environment.step({seat: "" if seat == "a" else "say 1" for seat in environment.to_move()})
    last = environment.step({"a": ""})
    assert last.rewards == {"a": {"payoff": -6.0}, "b": {"payoff": 3.0}, "c": {"payoff": 3.0}}
    assert not environment.success()


def test_success_is_the_first_seats() -> None:
    environment = begun()
    play(environment, dict.fromkeys(SEATS, lambda *_: "say 1"), Random(0))
    assert environment.success()
    environment = begun()
    play(environment, {"a": lambda *_: "say 4", "b": lambda *_: "say 3", "c": lambda *_: "say 3"}, Random(0))
    assert not environment.success()


def test_a_game_ends_after_its_longest_play_with_what_was_paid() -> None:
    environment = begun(longest=1)
    steps = play(environment, dict.fromkeys(SEATS, lambda *_: "say 1"), Random(0))
    assert totals(environment, steps) == {"a": 2.0, "b": -1.0, "c": -1.0}
    assert environment.spec.max_turns == 3


def test_chance_follows_from_the_seed_and_what_was_done_and_is_none_without_chance() -> None:
    def hidden(seed: int, has_chance: bool) -> str:
        environment = GameEnvironment(Drawn(has_chance=has_chance))
        environment.reset(task(seed))
        environment.step(dict.fromkeys(SEATS, "say 1"))
        return environment.render()

    assert {hidden(seed, has_chance=True) for seed in range(30)} == {f"{n} ((1, 1, 1),)" for n in range(5)}
    assert len({hidden(seed, has_chance=False) for seed in range(30)}) == 1
    assert hidden(4, has_chance=True) == hidden(4, has_chance=True)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"game": "chess"}, "snapshot of 'chess'"),
        ({"moves": [[1, 2]]}, "2 actions for 3 seats"),
        ({"moves": [[1, 2, 7]]}, "action 7 of c is not legal"),
        ({"moves": [[1, 1, 1]] * 3}, "3 actions for 0 seats"),
        ({"chosen": {"0": 9}}, "action 9 of a"),
        ({"chosen": {"0": 1, "1": 1, "2": 1}}, "nobody is left"),
        ({"chosen": {"5": 1}}, "do not move there"),
        ({"misses": [0, 0]}, "one number from 0 to 3 per seat"),
        ({"misses": [0, 0, 4]}, "one number from 0 to 3 per seat"),
        ({"more": 1}, "unknown field"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_a_snapshot_that_could_not_have_been_is_refused_and_nothing_changes(
    change: Mapping[str, object], why: str
) -> None:
    environment = begun()
    record = json.loads(environment.snapshot())
    environment.step(dict.fromkeys(SEATS, "say 2"))
    before = environment.snapshot(), environment.render()
    with pytest.raises(EnvironmentFault, match=why):
        environment.restore(json.dumps({**record, **change}).encode())
    assert (environment.snapshot(), environment.render()) == before


def test_names_are_made_different() -> None:
    named = named_actions([(0, " Call\n"), (3, "raise"), (4, "raise"), (7, "")])
    assert named == {"Call": 0, "raise #3": 3, "raise #4": 4, "#7": 7}
    assert named_actions([(1, "a"), (2, "a"), (3, "a #1")]) == {"a #1": 1, "a #2": 2, "a #1 #3": 3}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Bb5", 1), ("bb5", 2), (" bb5\n", 2), ("BB5", None), ("qa1", 5), ("q  A1", None), ("take the  PAWN", 8),
        ("5", 5), ("#5", 5), ("6", None), ("#6", None), ("٥", None), ("", None), ("5" * (LONGEST_ACTION + 1), None),
    ],
)  # fmt: skip
def test_an_action_is_found_by_its_text_in_any_case_that_is_clear_or_by_its_number(
    said: str, found: int | None
) -> None:
    assert find_action(said, {"Bb5": 1, "bb5": 2, "Qa1": 5, "take the pawn": 8}) == found


@pytest.mark.parametrize(("said", "found"), [("0", None), ("1", 0), ("2", 1), ("#1", 1), ("#0", 0)])
def test_where_actions_are_called_by_numbers_a_number_is_a_name(said: str, found: int | None) -> None:
    assert find_action(said, {"1": 0, "2": 1}) == found


@pytest.mark.parametrize("name", ["", "kuhn_poker", "open_spiel", "open_spiel:", "openspiel:chess", ":chess"])
def test_an_id_without_a_known_package_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is no id of a bridge: write PACKAGE:NAME.*'open_spiel'"):
        open_bridge(name)


def test_a_bridge_is_a_module_of_its_own_name() -> None:
    modules = {prefix: module.rpartition(".")[2] for prefix, module in PREFIX.items()}
    assert modules == {name: name for name in PREFIX} | {"reasoning_gym": "reasoning"}  # a scenario, too


def test_importing_the_bridges_loads_no_other_package() -> None:
    modules = "mas.scenarios.bridges.open_spiel_solvers, mas.scenarios.bridges.pettingzoo"
    code = f"import sys, {modules}\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"pyspiel", "pettingzoo", "gymnasium", "torch"} & set(out.split())


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(ConfigError, match=r"No module named 'no_such_game'.*pip install 'mas\[open-spiel\]'"):
        load_package("no_such_game", "open-spiel")


def test_nobody_without_a_try() -> None:
    with pytest.raises(ConfigError, match="tries=0"):
        GameEnvironment(Drawn(), tries=0)
