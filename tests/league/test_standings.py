"""What a table says of made-up tournaments: who differs from whom, circles, and what it keeps silent about."""

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest

from mas.league.match import PlayedGame
from mas.league.standings import Standings, standings
from mas.observe.significance import bonferroni

Paid = Callable[[str, str], float]
"""(first, second) -> what the first one gets."""


def tournament(players: str, deals: int, paid: Paid) -> list[PlayedGame]:
    """A round robin of a zero-sum game of two seats: each deal from both seats."""
    return [
        game(seated, paid(*seated), 2 * deal + turn, f"{''.join(pair)}{deal}")
        for deal in range(deals)
        for pair in combinations(players, 2)
        for turn, seated in enumerate((pair, pair[::-1]))
    ]


def game(seated: tuple[str, str], value: float, number: int, deal: str) -> PlayedGame:
    return PlayedGame(
        id=f"0/{number}/{'/'.join(seated)}",
        round=0,
        number=number,
        seed=sum(ord(letter) << 8 * place for place, letter in enumerate(deal[-12:])),
        players=seated,
        returns=(value, -value),
        moves=(),
    )


def compared(table: Standings) -> dict[tuple[str, str], tuple[float, float]]:
    """Pair -> difference in favour of the first in the alphabet, p."""
    return {
        (min(one.first, one.second), max(one.first, one.second)): (
            one.difference.mean if one.first < one.second else -one.difference.mean,
            one.p,
        )
        for one in table.comparisons
    }


def test_two_players_are_tested_in_their_own_games() -> None:
    table = standings("ab", tournament("ab", 10, lambda first, _: 1.0 if first == "a" else -1.0))
    assert compared(table) == {("a", "b"): (2.0, 2.0**-9)}
    assert table.against_others == ()


def test_who_always_wins_differs_though_both_draw_with_everybody_else() -> None:
    games = tournament("abc", 50, lambda first, second: {"ab": 1.0, "ba": -1.0}.get(first + second, 0.0))
    found = compared(standings("abc", games))
    difference, p = found["a", "b"]
    assert difference == 2.0
    assert p < 1e-9
    assert found["a", "c"] == found["b", "c"] == (0.0, 1.0)
    corrected = compared(standings("abc", games, correction=bonferroni))
    assert corrected["a", "b"][1] == pytest.approx(3 * 2.0**-49)


def test_a_deal_is_one_observation() -> None:
    """Luck that the deal alone decides: whoever sits first wins or loses, so mirrored games even out."""
    mirrored = [
        game(seated, 1.0, number, f"{number // 2}") for number, seated in enumerate([("a", "b"), ("b", "a")] * 8)
    ]
    assert compared(standings("ab", mirrored))["a", "b"] == (0.0, 1.0), "each deal is shared"
    once = standings("ab", mirrored).standings[0].interval
    # Wilson's interval of 4 of 8, not of 8 of 16: 0.5 +- 1.96 / (1 + 1.96^2 / 8) * sqrt(1/32 + 1.96^2 / 256).
    assert (once.low, once.high) == pytest.approx((0.2152, 0.7848), abs=1e-4)


def test_welch_against_others_is_for_round_robins_alone() -> None:
    random = Random(2)
    games = tournament("abcd", 5, lambda *_: random.choice((-1.0, 1.0)))
    assert len(standings("abcd", games).against_others) == 6
    swiss = [one for one in games if set(one.players) not in ({"a", "b"}, {"c", "d"})]
    table = standings("abcd", swiss)
    assert table.against_others == ()
    assert len(table.comparisons) == 4, "those who met"


@pytest.mark.nightly(of=16)
@pytest.mark.matrix("players,deals", [("abc", 3), ("abcd", 10), ("abcdef", 4)], default=[("abc", 3)])
def test_equal_players_are_rarely_told_to_beat_each_other_in_circles(players: str, deals: int) -> None:
    random = Random(len(players))
    told = large = 0
    for _ in range(200):
        table = standings(players, tournament(players, deals, lambda *_: random.choice((-1.0, 1.0))))
        told += table.misleads
        large += (table.cyclic or 0.0) > 0.5
    assert large > 20, "the share alone would say so"
    assert told < 20


def test_circles_of_noisy_players_are_told() -> None:
    random, beats = Random(3), {"rs", "sp", "pr"}

    def paid(first: str, second: str) -> float:
        wins = random.random() < 0.85
        return 1.0 if wins == (first + second in beats) else -1.0

    assert all(standings("rps", tournament("rps", 20, paid)).misleads for _ in range(20))
    assert standings("rps", tournament("rps", 4, lambda *pair: 1.0 if "".join(pair) in beats else -1.0)).misleads


def test_circles_and_shares_are_not_told_of_pairs_that_never_met() -> None:
    beats = {"rs", "sp", "pr"}
    games = tournament("rpsx", 4, lambda *pair: 1.0 if "".join(pair) in beats else 0.0 if "x" in pair else -1.0)
    table = standings("rpsx", [one for one in games if set(one.players) != {"r", "x"}])
    assert table.payoff.unplayed == [("r", "x")]
    assert table.cyclic is None
    assert not table.misleads
    assert {(row.nash, row.alpha_rank) for row in table.standings} == {(None, None)}


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
def test_alpha_rank_is_the_same_in_whatever_unit_games_are_paid(unit: float) -> None:
    table = standings("abc", tournament("abc", 4, lambda first, second: unit if first < second else -unit))
    assert {row.name: row.alpha_rank for row in table.standings} == pytest.approx({"a": 1.0, "b": 0.0, "c": 0.0})


def test_a_ladder_of_noisy_players_is_no_circle() -> None:
    random = Random(4)
    strength = {"a": 0.9, "b": 0.6, "c": 0.4, "d": 0.1}

    def paid(first: str, second: str) -> float:
        return 1.0 if random.random() < 0.5 + (strength[first] - strength[second]) / 2 else -1.0

    tables = [standings("abcd", tournament("abcd", 20, paid)) for _ in range(50)]
    assert not any(table.misleads for table in tables)
