"""The player `solver` draws from an equilibrium, and games have short names."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mas
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.league.games import full_name, open_world
from mas.league.match import chance_of
from mas.league.players import AtRandom, Scripted, scripted
from mas.scenarios.bridges.open_spiel_players import SOLVED
from mas.scenarios.bridges.open_spiel_solvers import nash_conv

DRAWS = 600


def drawn(name: str, player: AtRandom | Scripted) -> dict[str, Counter[str]]:
    """How often a player makes each move, by what its seat sees, over all decisions of a small game."""
    found: dict[str, Counter[str]] = {}
    game = open_world(f"open_spiel:{name}").open()

    def follow(at: Environment) -> None:
        for seat in at.to_move():
            seen = at.observe(seat).fields["seen"]
            if seen not in found or not found[seen]:
                found[seen] = Counter(player.choose(chance_of(at, seat, number)) for number in range(DRAWS))
        for text in at.legal(at.to_move()[0]) or () if len(at.to_move()) == 1 else ():
            after = at.clone()
            after.step({at.to_move()[0]: text})
            follow(after)

    for seed in range(40 if name == "kuhn_poker" else 1):
        game.reset(Task(id="solver", seed=seed))
        follow(game)
    return found


def conv(name: str, player: AtRandom | Scripted) -> float:
    """NashConv of the moves that were drawn."""
    counts = drawn(name, player)
    return nash_conv(name, lambda seen, legal: {text: counts[seen][text] / DRAWS for text in legal})


@pytest.mark.parametrize(("name", "uniform"), [("kuhn_poker", 0.9), ("matrix_brps", 15.0)])
def test_what_it_draws_is_nearly_unbeatable_and_a_uniform_player_is_not(name: str, uniform: float) -> None:
    world = open_world(f"open_spiel:{name}")
    # 600 draws miss a probability by 0.02 or less (standard deviation), of a payoff's size of 2 and 50.
    assert conv(name, scripted("solver", world)) < 0.15 * uniform
    assert conv(name, scripted("random", world)) > 0.9 * uniform


def test_it_mixes_where_an_equilibrium_of_kuhn_poker_must() -> None:
    counts = drawn("kuhn_poker", scripted("solver", open_world("open_spiel:kuhn_poker")))
    # Kuhn 1950: the second seat bets a third of the time with the lowest card after a pass, and calls a bet with the
    # middle card a third of the time; it always bets with the highest.
    assert counts["0p"]["Bet"] / DRAWS == pytest.approx(1 / 3, abs=0.07)
    assert counts["1b"]["Bet"] / DRAWS == pytest.approx(1 / 3, abs=0.07)
    assert counts["2p"]["Bet"] == DRAWS
    # The first seat bluffs with a share of at most a third, and bets its highest card three times as often.
    bluffs, bets = (counts[card]["Bet"] / DRAWS for card in "02")
    assert bluffs <= 1 / 3 + 0.07
    assert bets == pytest.approx(3 * bluffs, abs=0.15)


@pytest.mark.parametrize("name", sorted(set(SOLVED) - {"leduc_poker"}))
def test_every_game_that_it_knows_is_played_from_both_seats(name: str, tmp_path: Path) -> None:
    found = mas.League(f"open_spiel:{name}", tmp_path / "cup.db").play({"one": "solver", "two": "solver"}, games=2)
    assert "2 games" in str(found)


@pytest.mark.parametrize("game", ["open_spiel:go", "open_spiel:matrix_pd", "two_player:simple_negotiation"])
def test_a_game_without_a_solution_is_refused_with_those_that_have_one(game: str) -> None:
    with pytest.raises(ConfigError, match="no equilibrium of it is known here, only of kuhn_poker, leduc_poker"):
        scripted("solver", open_world(game))


def test_other_packages_games_and_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(solver plays kuhn_poker, leduc_poker, .*take random"):
        scripted("solver", open_world("pettingzoo:classic/tictactoe_v3"))
    with pytest.raises(ConfigError, match="write solver, which knows"):
        scripted("solver:3", open_world("open_spiel:kuhn_poker"))


def test_short_names_are_those_of_two_player(tmp_path: Path, mas: Callable[..., Any]) -> None:
    names = {"kuhn": "two_player:kuhn_poker", "leduc,tries=3": "two_player:leduc_poker,tries=3"}
    names |= {"tic_tac_toe": "two_player:tic_tac_toe", "open_spiel:kuhn_poker": "open_spiel:kuhn_poker"}
    assert {name: full_name(name) for name in names} == names
    words = ["--player", "random", "--player", "solver", "--games", "4", "--league", str(tmp_path / "cup.db")]
    ran = mas("league", "run", "--game", "kuhn", *words)
    assert ran.code == 0
    assert "two_player:kuhn_poker, 4 games" in ran.out
    pool = str(tmp_path / "pool.db")
    for name in ("one", "two"):  # the second one meets the first in the pool's game
        ran = mas("league", "enter", "random", "--name", name, "--game", "kuhn", "--games", "2", "--league", pool)
        assert ran.err == ""
    assert "two_player:kuhn_poker" in mas("league", "members", "--league", pool).out
    out = str(tmp_path / "out")
    refused = mas("league", "respond", "--to", "random", "--game", "kuhn", "--out", out, "train.stepz=3")
    assert "Did you mean 'steps'" in refused.err
    assert "--steps says how long" in mas("league", "psro", "--game", "kuhn", "--out", out, "train.steps=3").err
