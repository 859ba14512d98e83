"""Fixtures: everybody meets everybody, from every seat, with the same deals."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.core.errors import ConfigError
from mas.league.match import Fixture
from mas.league.tournament import round_robin, swiss_round


@given(count=st.integers(2, 7), pairs=st.integers(1, 3), seats=st.integers(2, 3), seed=st.integers(0, 5))
def test_a_round_robin_is_balanced(count: int, pairs: int, seats: int, seed: int) -> None:
    names = [f"player {index}" for index in range(max(count, seats))]
    fixtures = round_robin(names, seats=seats, games=pairs * seats, seed=seed)
    assert len({fixture.id for fixture in fixtures}) == len(fixtures)
    met = Counter(frozenset(fixture.players) for fixture in fixtures)
    assert set(met.values()) == {pairs * seats}
    seated = Counter((name, seat) for fixture in fixtures for seat, name in enumerate(fixture.players))
    assert len(set(seated.values())) == 1, "everybody sits everywhere as often"
    deals: dict[tuple[frozenset[str], int], set[tuple[str, ...]]] = {}
    for fixture in fixtures:
        deals.setdefault((frozenset(fixture.players), fixture.seed), set()).add(fixture.players)
    assert all(len(turned) == seats for turned in deals.values()), "each deal is played from every seat"


def test_fixtures_depend_on_the_seed_and_not_on_the_order_of_names() -> None:
    one, again = (round_robin("ab", seats=2, games=2, seed=seed) for seed in (1, 1))
    assert one == again
    assert {fixture.seed for fixture in round_robin("ab", seats=2, games=2, seed=2)} != {one[0].seed}
    assert round_robin("ba", seats=2, games=2, seed=1) == one
    three = round_robin("abcd", seats=3, games=3, seed=1)
    assert [fixture.id for fixture in round_robin("cbda", seats=3, games=3, seed=1)] == [game.id for game in three]


@pytest.mark.parametrize("turned", ["edcba", "cabed"])
def test_swiss_rounds_do_not_depend_on_the_order_of_names(turned: str) -> None:
    points = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 0.0}
    first = swiss_round(points, [], games=2, seed=0, number=0)
    assert swiss_round({name: points[name] for name in turned}, [], games=2, seed=0, number=0) == first
    second = swiss_round(points, first, games=2, seed=0, number=1)
    assert swiss_round({name: points[name] for name in turned}, first, games=2, seed=0, number=1) == second


@pytest.mark.parametrize(
    ("names", "seats", "games", "message"),
    [
        ("a", 2, 2, "1 players for a game of 2"),
        ("aba", 2, 2, "a: more than one player of that name"),
        ("ab", 2, 3, "choose a multiple of 2"),
        ("ab", 2, 0, "choose a multiple of 2"),
    ],
)
def test_what_cannot_be_balanced_is_refused(names: str, seats: int, games: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        round_robin(names, seats=seats, games=games, seed=0)


def swiss(count: int, rounds: int, games: int = 2) -> list[Fixture]:
    """A tournament in which the smaller number always wins."""
    points = {f"{index:02}": 0.0 for index in range(count)}
    played: list[Fixture] = []
    for number in range(rounds):
        found = swiss_round(points, played, games=games, seed=1, number=number)
        for fixture in found:
            points[min(fixture.players)] += 1.0
        played += found
    return played


@given(count=st.integers(4, 12))
def test_swiss_rounds_repeat_no_pairing_and_let_everybody_play(count: int) -> None:
    rounds = 3
    played = swiss(count, rounds)
    pairs = Counter(frozenset(fixture.players) for fixture in played)
    assert set(pairs.values()) == {2}
    for number in range(rounds):
        playing = Counter(name for fixture in played if fixture.round == number for name in fixture.players)
        assert len(playing) == count - count % 2
        assert set(playing.values()) == {2}
    sat = Counter(f"{index:02}" for index in range(count))
    for number in range(rounds):
        sat.subtract({name for fixture in played if fixture.round == number for name in fixture.players})
    assert max(sat.values()) - min(sat.values()) <= 1, "nobody sits out twice before all others have once"


def test_sitting_out_a_swiss_round_is_worth_winning_it() -> None:
    first = swiss_round(dict.fromkeys("abcde", 0.0), [], games=2, seed=0, number=0)
    assert {name for fixture in first for name in fixture.players} == set("abcd"), "e sits out"
    points = {"a": 2.0, "b": 1.5, "c": 0.5, "d": 0.0, "e": 0.0}
    second = swiss_round(points, first, games=2, seed=0, number=1)
    assert {frozenset(fixture.players) for fixture in second} == {frozenset("ae"), frozenset("bc")}, "e has 2, too"


def test_swiss_neighbours_in_points_meet() -> None:
    points = {"a": 4.0, "b": 0.0, "c": 4.0, "d": 0.0}
    found = swiss_round(points, [], games=2, seed=0, number=0)
    assert [set(fixture.players) for fixture in found] == [{"a", "c"}] * 2 + [{"b", "d"}] * 2


def test_swiss_finds_the_best_of_many_in_few_rounds() -> None:
    wins = Counter(min(fixture.players) for fixture in swiss(16, 4))
    assert wins.most_common(1) == [("00", 8)]
