"""Ratings and payoffs of games."""

import numpy as np
import pytest
from scipy import stats

from mas.core.errors import ConfigError
from mas.league.payoff import circles_p, cyclic_share, payoff_matrix
from mas.league.standings import rate


def test_who_wins_is_rated_higher_and_surer() -> None:
    found = rate(["strong", "weak", "absent"], [(("strong", "weak"), (1.0, -1.0))] * 10)
    assert found["strong"].ordinal > found["absent"].ordinal
    assert found["strong"].mu > 25 > found["weak"].mu
    assert found["strong"].sigma < found["absent"].sigma == pytest.approx(25 / 3)


def test_draws_leave_equals_equal() -> None:
    found = rate(["a", "b"], [(("a", "b"), (0.0, 0.0))] * 5)
    assert found["a"].mu == pytest.approx(found["b"].mu)


def test_ratings_do_not_depend_on_the_order_of_games() -> None:
    # a wins 11 of 20 against each of the others, but the first ones.
    won = [(("a", other), (1.0, -1.0)) for other in "bc" for _ in range(11)]
    lost = [(("a", other), (-1.0, 1.0)) for other in "bc" for _ in range(9)]
    even = [(("b", "c"), (1.0, -1.0)), (("c", "b"), (1.0, -1.0))] * 10
    found = rate("abc", [*won, *even, *lost])
    assert max(found, key=lambda name: found[name].ordinal) == "a"
    assert found == rate("abc", [*lost, *won, *even])


def test_strangers_and_games_against_oneself_are_left_out() -> None:
    assert rate(["a"], [(("a", "x"), (1.0, 0.0)), (("a", "a"), (1.0, -1.0))])["a"].mu == 25


def test_a_circle_of_equals_has_equal_ratings_and_is_told_as_cyclic() -> None:
    games = [
        (("rock", "scissors"), (1.0, -1.0)),
        (("scissors", "paper"), (1.0, -1.0)),
        (("paper", "rock"), (1.0, -1.0)),
    ]
    found = payoff_matrix(["rock", "paper", "scissors"], games * 4)
    assert cyclic_share(found.mean) == pytest.approx(1.0)
    assert found.unplayed == []
    mus = [rating.mu for rating in rate(found.players, games * 4).values()]
    assert max(mus) - min(mus) < 5, "ratings see three players of about one strength, though each loses every game"


def test_payoffs_have_means_variances_and_counts() -> None:
    games = [(("a", "b"), (1.0, -1.0)), (("b", "a"), (0.0, 0.0)), (("a", "c"), (2.0, 5.0))]
    found = payoff_matrix(["a", "b", "c"], games)
    assert found.mean.tolist() == [[0.0, 0.5, 2.0], [-0.5, 0.0, 0.0], [5.0, 0.0, 0.0]]
    assert found.variance[0, 1] == pytest.approx(0.5)
    assert found.variance[0, 2] == 0.0
    assert found.games.tolist() == [[0, 2, 1], [2, 0, 0], [1, 0, 0]]
    assert found.unplayed == [("b", "c")]


def test_a_ladder_is_not_cyclic() -> None:
    skill = np.array([3.0, 1.0, 0.0, -4.0])
    assert cyclic_share(skill[:, None] - skill[None, :]) == pytest.approx(0.0, abs=1e-12)
    assert cyclic_share(np.zeros((2, 2))) == 0.0


def test_games_of_three_count_for_each_two() -> None:
    found = payoff_matrix(["a", "b", "c"], [(("a", "b", "c"), (2.0, 1.0, 0.0))])
    assert found.games.sum() == 6
    assert found.mean[0].tolist() == [0.0, 2.0, 2.0]


def test_the_test_of_circles_by_hand() -> None:
    # Three pairs of 4 deals, means 0.5, 0.5 and -0.5 of A-B, B-C, A-C: a circle of 1.5, of which 0.5 is left at each
    # pair: 12 * 0.25 = 3 with 1 degree of freedom. Within pairs 3 * 4 * 0.25 = 3 with 9: F = 9.
    pairs = {("a", "b"): [0.0, 1.0, 0.0, 1.0], ("b", "c"): [0.0, 1.0, 0.0, 1.0], ("a", "c"): [0.0, -1.0, 0.0, -1.0]}
    assert circles_p(pairs) == pytest.approx(stats.f.sf(9.0, 1, 9))
    assert circles_p({("a", "b"): [1.0, 1.0], ("b", "c"): [1.0, 1.0], ("a", "c"): [-1.0, -1.0]}) == 2.0**-3
    assert circles_p({("a", "b"): [1.0, 1.0], ("b", "c"): [1.0, 1.0], ("a", "c"): [2.0, 2.0]}) == 1.0
    assert circles_p({("a", "b"): [1.0, 0.0]}) == circles_p({}) == 1.0, "two players make no circle"


def test_games_and_payoffs_have_to_be_as_many() -> None:
    with pytest.raises(ConfigError, match="a game of 2 players with 1 payoffs"):
        payoff_matrix(["a"], [(("a", "b"), (1.0,))])


def test_of_three_seats_each_is_rated_by_its_own_place() -> None:
    names, got = ("best", "middle", "last"), (5.0, 1.0, -2.0)
    found = rate(names, [(names, got)] * 4)
    assert found["best"].mu > found["middle"].mu > found["last"].mu
    # Seats do not matter, nor does by how much one got more.
    turned = rate(names, [(("last", "best", "middle"), (0.0, 9.0, 8.5))] * 4)
    assert {name: rating.mu for name, rating in turned.items()} == pytest.approx(
        {name: rating.mu for name, rating in found.items()}
    )
    shared = rate(names, [(names, (5.0, -2.0, -2.0))] * 4)
    assert shared["middle"].mu == pytest.approx(shared["last"].mu)
