"""Populations grow by best answers until they hold an equilibrium of the whole game."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.core.errors import ConfigError
from mas.league.meta import MetaSolver, Mixes, exploitability
from mas.league.payoff import Matrix, Mix
from mas.league.psro import Expected, Iteration, psro

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


class MatrixGame:
    """Players are rows and columns; answers are exact."""

    def __init__(self, first: Matrix, second: Matrix) -> None:
        self.payoffs, self.played = (first, second), Counter[tuple[int, int]]()

    def play(self, row: int, column: int) -> Sequence[tuple[float, float]]:
        self.played[row, column] += 1
        return [(self.payoffs[0][row, column], self.payoffs[1][row, column])]

    def respond(self, seat: int, others: Sequence[int], mix: Mix) -> int:
        if seat == 0:
            return int((self.payoffs[0][:, list(others)] @ mix).argmax())
        return int((mix @ self.payoffs[1][list(others)]).argmax())

    def whole(self, last: Iteration[int]) -> Mixes:
        """The meta-strategies as mixes of all rows and columns."""
        mixes = [np.zeros(size) for size in self.payoffs[0].shape]
        for mix, population, own in zip(mixes, last.populations, last.mixes, strict=True):
            mix[list(population)] = own
        return Mixes(mixes[0], mixes[1])


def test_from_rock_alone_all_three_are_found_and_played_evenly() -> None:
    game = MatrixGame(ROCK_PAPER_SCISSORS, -ROCK_PAPER_SCISSORS)
    found = list(psro(0, 0, game.play, game.respond))
    assert [len(one.populations[0]) for one in found] == [1, 2, 3], "paper, then scissors"
    assert found[0].gained == 2.0, "both could win each game against rock"
    assert found[-1].gained == pytest.approx(0.0, abs=1e-6)
    assert list(found[-1].mixes.first) == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert set(game.played.values()) == {1}, "no pair plays twice"


def test_uniform_meta_strategies_are_fictitious_and_keep_weak_players() -> None:
    # Row 0 is beaten by everything: nash drops it, uniform goes on meeting it.
    first = np.array([[0.0, -1.0, -1.0], [1.0, 0.0, 0.5], [1.0, -0.5, 0.0]])
    game = MatrixGame(first, -first)
    nash, even = (list(psro(0, 0, game.play, game.respond, solver=solver)) for solver in ("nash", "uniform"))
    assert nash[-1].mixes.first[0] == pytest.approx(0.0, abs=1e-6)
    assert even[-1].mixes.first[0] > 0.3
    assert exploitability(first, -first, game.whole(nash[-1])) < 1e-6


@pytest.mark.nightly(of=16)
def test_a_game_of_common_interest_reaches_its_equilibrium_by_the_replicator() -> None:
    first = np.array([[1.0, 0.0], [0.0, 3.0]])
    game = MatrixGame(first, first)
    found = list(psro(0, 1, game.play, game.respond, solver="projected_replicator"))
    # The average of the dynamics, which began evenly, has about a hundredth of its way in it.
    assert [mix[1] > 0.98 for mix in game.whole(found[-1])] == [True, True]


payoffs = st.lists(st.lists(st.integers(-5, 5).map(float), min_size=5, max_size=5), min_size=5, max_size=5)


@settings(deadline=None, max_examples=25)
@given(payoffs)
def test_double_oracle_ends_in_an_equilibrium_of_the_whole_game(rows: list[list[float]]) -> None:
    first = np.array(rows)
    game = MatrixGame(first, -first)
    last = list(psro(0, 0, game.play, game.respond, iterations=20, enough=1e-6))[-1]
    assert last.gained is not None
    assert exploitability(first, -first, game.whole(last)) <= 1e-5
    assert last.inside <= 1e-5


def test_what_answers_gain_is_nash_conv_when_they_are_exact() -> None:
    first = np.array([[2.0, -1.0, 0.0], [0.0, 1.0, -2.0], [-1.0, 0.5, 1.0]])
    game = MatrixGame(first, -first)
    for one in psro(1, 2, game.play, game.respond):
        assert one.gained == pytest.approx(exploitability(first, -first, game.whole(one)), abs=1e-9)


def test_variances_are_of_single_games_and_risk_is_read() -> None:
    def play(row: int, column: int) -> list[tuple[float, float]]:
        # Row 0 wins or loses 4 and so 0.5 on average more, row 1 always gets 0.
        return [(4.5, -4.5), (-3.5, 3.5)] if row == 0 else [(0.0, 0.0)] * 2

    def respond(seat: int, others: Sequence[int], mix: Mix) -> int:
        return 1 if seat == 0 else 0

    bold, careful = (
        list(psro(0, 0, play, respond, solver=solver, iterations=1, enough=-9.0))[-1]
        for solver in ("projected_replicator", "risk_averse")
    )
    assert bold.variances[0].tolist() == [[16.0], [0.0]]
    assert bold.mixes.first[0] > 0.9
    assert careful.mixes.first[1] > 0.9


def test_what_is_known_exactly_is_taken_as_it_is() -> None:
    def play(row: int, column: int) -> Expected:
        return Expected((0.25, -0.25), (2.0, 3.0))

    only = list(psro(0, 0, play, lambda *_: 0, iterations=1))[-1]
    assert (only.means[1].tolist(), only.variances[0].tolist()) == ([[-0.25]], [[2.0]])
    assert only.variances[1].tolist() == [[3.0]]


def test_iterations_are_told_one_by_one_and_go_on_without_gains_if_wanted() -> None:
    game, asked = MatrixGame(ROCK_PAPER_SCISSORS, -ROCK_PAPER_SCISSORS), list[int]()

    def respond(seat: int, others: Sequence[int], mix: Mix) -> int:
        asked.append(seat)
        return 0

    growing = psro(0, 0, game.play, respond, iterations=3, enough=float("-inf"))
    assert asked == []
    next(growing)
    assert asked == [0, 1]
    assert len(list(growing)) == 3
    assert len(list(psro(0, 0, game.play, respond, iterations=3))) == 1


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("solver", get_args(MetaSolver))
def test_two_unequal_populations_can_be_solved_by_each(solver: MetaSolver) -> None:
    first = np.array([[2.0, -1.0, 0.0, 1.0], [0.0, 1.0, -2.0, 0.0], [-1.0, 0.5, 1.0, 0.5]])
    game = MatrixGame(first, -first)
    last = list(psro(1, 3, game.play, game.respond, solver=solver, iterations=6, enough=1e-3))[-1]
    assert [mix.sum() for mix in last.mixes] == pytest.approx([1, 1])
    assert exploitability(first, -first, game.whole(last)) < 1.5


def test_what_cannot_be_is_refused() -> None:
    game = MatrixGame(ROCK_PAPER_SCISSORS, -ROCK_PAPER_SCISSORS)
    with pytest.raises(ConfigError, match="iterations=0"):
        list(psro(0, 0, game.play, game.respond, iterations=0))
    with pytest.raises(ConfigError, match="played no game"):
        list(psro(0, 0, lambda row, column: [], game.respond))
