"""Meta-solvers against known equilibria, and against what ratings would say."""

import time
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import ORACLES, near
from scipy.optimize import OptimizeResult

from mas.core.errors import ConfigError
from mas.league.meta import (
    MetaSolver,
    Mixes,
    alpha_rank,
    alpha_rank_of_two,
    exploitability,
    projected_replicator,
    replicator_step,
    risk_averse,
    solve,
)
from mas.league.payoff import cyclic_share

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
GOLDEN = ORACLES["39_psro"]
THIRD = np.full(3, 1 / 3)


def test_one_replicator_step() -> None:
    mix = np.array([0.6, 0.3, 0.1])
    found = replicator_step(mix, ROCK_PAPER_SCISSORS @ mix, 0.1)
    assert list(found) == near(GOLDEN["projected_replicator_one_step_dt01"])


@pytest.mark.parametrize("name", ["nash", "projected_replicator", "uniform", "alpha_rank"])
def test_rock_paper_scissors_is_played_evenly(name: str) -> None:
    found = solve(name, ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS.T)
    for mix in found:
        assert [round(float(value), 2) for value in mix] == GOLDEN["nash_rps_fictitious_play_2dp"]
    assert exploitability(ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS.T, found) == pytest.approx(0, abs=1e-6)


def test_exploitability_of_playing_rock_alone() -> None:
    rock = np.array([1.0, 0.0, 0.0])
    assert exploitability(ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS.T, Mixes(rock, rock)) == pytest.approx(2.0)
    even = exploitability(ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS.T, Mixes(THIRD, THIRD))
    assert even == pytest.approx(GOLDEN["exploitability_of_uniform_rps"])


def test_nash_of_a_game_with_two_kinds_of_best_play_is_the_most_even() -> None:
    # Two copies of rock: Nash averaging shares rock's third between them.
    order = [0, 0, 1, 2]
    copied = ROCK_PAPER_SCISSORS[np.ix_(order, order)]
    assert list(solve("nash", copied, copied.T).first) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3], abs=1e-4)


def test_nash_of_unequal_sides() -> None:
    # Matching pennies with a third row that loses a little always: value 0, the third row is never played.
    first = np.array([[1.0, -1.0], [-1.0, 1.0], [-0.5, -0.5]])
    found = solve("nash", first, -first)
    assert list(found.first) == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)
    assert list(found.second) == pytest.approx([0.5, 0.5], abs=1e-6)


def test_nash_refuses_a_game_that_is_not_zero_sum() -> None:
    with pytest.raises(ConfigError, match="add up to 2: take projected_replicator"):
        solve("nash", np.ones((2, 2)), np.ones((2, 2)))


def test_risk_aversion_turns_the_stag_hunt() -> None:
    payoff = np.array([[4.0, -4.0], [2.0, 2.0]])
    mix = np.array([0.8, 0.2])
    for row, name in enumerate(("stag", "hare")):
        golden = GOLDEN["mean_variance_our_reading"][name]
        mean = float(payoff[row] @ mix)
        variance = float(payoff[row] ** 2 @ mix) - mean**2
        assert (mean, variance, mean - 0.5 * variance) == near(tuple(golden.values()))
    # From even odds the stag is worth 0 and varies by 16, the hare is worth 2.
    assert risk_averse(payoff, payoff.T, None, 0.5).first[1] > 0.9
    # With stags worth 12 and -2 the mean says stag; it is the variance that says hare.
    tempting = np.array([[12.0, -2.0], [2.0, 2.0]])
    bold = solve("projected_replicator", tempting, tempting.T)
    assert bold.first[0] > 0.9
    assert solve("risk_averse", tempting, tempting.T, risk=0.5).first[1] > 0.9


def test_players_whose_payoffs_go_against_each_other_hedge() -> None:
    # Against an even mix the first two get 1 or -1, half of each always 0; the third loses 0.1, and has no variance.
    payoff = np.array([[1.0, -1.0], [-1.0, 1.0], [-0.1, -0.1]])
    found = risk_averse(payoff, np.zeros((3, 2)), None, 0.5)
    assert list(found.second) == pytest.approx([0.5, 0.5])
    assert list(found.first) == pytest.approx([0.5, 0.5, 0.0], abs=0.02)
    # Payoffs that go together do not hedge: only the third is safe then.
    together = np.array([[1.0, -1.0], [1.0, -1.0], [-0.1, -0.1]])
    assert risk_averse(together, np.zeros((3, 2)), None, 0.5).first[2] > 0.85


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_risk_aversion_is_the_same_in_whatever_unit_worth_is_paid(unit: float) -> None:
    payoff = np.array([[3.0, -1.0, 0.5], [-1.0, 2.0, 0.0], [0.2, 0.1, 0.4]])
    usual, found = (risk_averse(payoff * by, -payoff.T * by, None, 0.2 / by) for by in (1.0, unit))
    assert list(found.first) == pytest.approx(list(usual.first), abs=1e-9)
    assert list(found.second) == pytest.approx(list(usual.second), abs=1e-9)


def test_shares_of_two_independent_risks_are_inverse_to_their_variances() -> None:
    # Minimise p.C p with C = diag(1, 3): p = (3/4, 1/4).
    even, spread = np.zeros((2, 1)), np.array([[1.0], [3.0]])
    found = risk_averse(even, even, (spread, np.zeros((2, 1))), 1.0)
    assert list(found.first) == pytest.approx([0.75, 0.25], abs=1e-3)


def test_the_variance_of_single_games_counts() -> None:
    even, spread = np.zeros((2, 2)), np.array([[4.0, 4.0], [0.0, 0.0]])
    found = risk_averse(even, even.T, (spread, np.zeros((2, 2))), 1.0)
    assert found.first[1] > 0.9
    assert list(found.second) == pytest.approx([0.5, 0.5])


def test_alpha_rank_as_open_spiel_has_it() -> None:
    alpharank = pytest.importorskip("open_spiel.python.egt.alpharank")
    payoff = np.array([[0.0, 0.4, -0.2, 0.1], [-0.4, 0.0, 0.3, 0.0], [0.2, -0.3, 0.0, 0.2], [-0.1, 0.0, -0.2, 0.0]])
    for alpha in (0.1, 1.0, 10.0):
        _, _, mass, _, _ = alpharank.compute([payoff], m=50, alpha=alpha)
        assert list(alpha_rank(payoff, alpha=alpha)) == pytest.approx(list(mass), abs=1e-6)


def test_alpha_rank_of_two_populations_as_open_spiel_has_it() -> None:
    alpharank = pytest.importorskip("open_spiel.python.egt.alpharank")
    first = np.array([[0.4, -0.2, 0.1], [-0.4, 0.3, 0.0]])
    for second in (-first, np.array([[0.1, 0.2, -0.3], [0.0, -0.1, 0.4]])):
        for alpha in (0.1, 1.0, 10.0):
            _, _, mass, _, _ = alpharank.compute([first, second], m=50, alpha=alpha)
            found = alpha_rank_of_two(first, second, alpha=alpha)
            assert list(found.first) == pytest.approx(list(mass.reshape(2, 3).sum(axis=1)), abs=1e-6)
            assert list(found.second) == pytest.approx(list(mass.reshape(2, 3).sum(axis=0)), abs=1e-6)
    assert solve("alpha_rank", np.ones((1, 1)), np.ones((1, 1)) * 2) == Mixes(np.ones(1), np.ones(1))


@pytest.mark.parametrize("alpha", [1.0, 10.0, 100.0, 10_000.0])
def test_alpha_rank_of_several_equilibria_is_the_better_one(alpha: float) -> None:
    # Leaving an equilibrium is once in e^4900 times or less, and from the better one e^2450 times as seldom.
    better = np.diag([1.0, 0.5])
    for mix in alpha_rank_of_two(better, better, alpha=alpha):
        assert list(mix) == pytest.approx([1, 0], abs=1e-9)
    for mix in solve("alpha_rank", better, better):
        assert list(mix) == pytest.approx([1, 0], abs=1e-9)
    three = np.diag([0.5, 1.0, 0.9])
    assert list(alpha_rank_of_two(three, three, alpha=alpha).first) == pytest.approx([0, 1, 0], abs=0.02)
    alike = alpha_rank_of_two(np.eye(3), np.eye(3), alpha=alpha)
    assert [*alike.first, *alike.second] == pytest.approx([1 / 3] * 6)


@pytest.mark.parametrize("gain", [1e-4, 1e-3, 0.01, 0.1, 1.0])
def test_alpha_rank_of_two_players_as_detailed_balance_has_it(gain: float) -> None:
    # How likely each takes the other over differs by the factor e^((m - 1) d).
    found = alpha_rank(np.array([[0.0, gain], [-gain, 0.0]]), alpha=100.0)
    odds = np.exp(-49 * 2 * 100 * gain)
    assert found[1] == pytest.approx(odds / (1 + odds), rel=1e-9, abs=0)
    for mix in (alpha_rank(ROCK_PAPER_SCISSORS), *alpha_rank_of_two(ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS.T)):
        assert list(mix) == pytest.approx(list(THIRD), abs=1e-9)


def test_ratings_mislead_where_players_beat_each_other_in_a_circle() -> None:
    """D beats everybody a little; A, B and C beat each other in a circle, and A beats weak players by far."""
    strong = 0.9 * ROCK_PAPER_SCISSORS
    payoff = np.zeros((5, 5))
    payoff[:3, :3] = strong
    payoff[0, 4], payoff[4, 0] = 1.0, -1.0  # Only the first of the circle plays well against the weak fifth.
    ratings = payoff.mean(axis=1)
    assert ratings.argmax() == 0, "by its rating the first one is the best"
    found = solve("nash", payoff, payoff.T).first
    beaten = payoff[1] @ np.eye(5)[0]
    assert beaten == pytest.approx(0.9), "and the second beats it nearly always"
    assert float((payoff.T @ found).min()) >= -1e-6, "nobody beats the mix"
    assert float((payoff.T @ np.eye(5)[0]).min()) == pytest.approx(-0.9), "the best rated is beaten"
    assert cyclic_share(payoff) > 0.5


payoffs = st.lists(st.lists(st.integers(-5, 5).map(float), min_size=4, max_size=4), min_size=4, max_size=4)


@settings(deadline=None, max_examples=40)
@given(payoffs)
@example([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [3.0, 2.0, -4.0, 0.0], [3.0, 3.0, 3.0, 5.0]])
def test_nash_cannot_be_exploited(rows: list[list[float]]) -> None:
    first = np.array(rows)
    found = solve("nash", first, -first)
    assert all(mix.sum() == pytest.approx(1) and mix.min() >= 0 for mix in found)
    assert exploitability(first, -first, found) <= 1e-6 * max(1.0, np.abs(first).max())


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from(["normal", "whole", "few", "ladder"]), st.data())
def test_copies_of_a_player_weigh_the_same(seed: int, size: int, kind: str, data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    sides = {
        "normal": random.normal(size=(size, size)),
        "whole": random.integers(-3, 4, size=(size, size)).astype(float),
        "few": np.sign(random.normal(size=(size, size))) * (random.random((size, size)) < 0.3),
        "ladder": np.tanh(random.normal(size=(size, 1)) - random.normal(size=(1, size))),
    }[kind]
    copies = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size))
    order = [*range(size), *copies]
    payoff = (sides - sides.T)[np.ix_(order, order)] * data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    found = solve("nash", payoff, payoff.T)
    assert exploitability(payoff, payoff.T, found) <= 1e-6 * np.abs(payoff).max()
    for place, copied in enumerate(copies, size):
        assert found.first[place] == pytest.approx(found.first[copied], abs=1e-7)
        assert found.second[place] == pytest.approx(found.second[copied], abs=1e-7)


def test_nash_of_equals_and_of_a_face_of_many_equilibria_is_the_most_even() -> None:
    assert list(solve("nash", np.zeros((3, 3)), np.zeros((3, 3))).first) == pytest.approx([1 / 3] * 3)
    # Column one gives 0 whoever plays, so the best mixes are those that get 0 or more of column two: x1 >= 2 x3. The
    # even one does not; the most even one has x1 = 2 x3 and x ~ exp(lambda (1, 0, -2)), so lambda = ln(2) / 3.
    first = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, -2.0]])
    tilted = np.array([2 ** (1 / 3), 1.0, 2 ** (-2 / 3)])
    found = solve("nash", first, -first)
    assert list(found.first) == pytest.approx(list(tilted / tilted.sum()), abs=1e-6)
    assert list(found.second) == pytest.approx([1.0, 0.0], abs=1e-9)


def test_nash_of_thirty_players_is_quick() -> None:
    random, slowest = np.random.default_rng(5), 0.0
    for _ in range(5):
        sides = random.normal(size=(30, 30))
        before = time.perf_counter()
        found = solve("nash", sides - sides.T, sides.T - sides)
        slowest = max(slowest, time.perf_counter() - before)
        assert exploitability(sides - sides.T, sides.T - sides, found) <= 1e-6 * np.abs(sides - sides.T).max()
    assert slowest < 1.0


def test_what_cannot_be_solved_is_an_error_and_no_worse_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    unsolved = OptimizeResult(status=4, message="numbers too far apart")
    monkeypatch.setattr("mas.league.payoff.linprog", lambda *_, **__: unsolved)
    with pytest.raises(ConfigError, match="no equilibrium of these payoffs could be computed \\(numbers too far apart"):
        solve("nash", ROCK_PAPER_SCISSORS, ROCK_PAPER_SCISSORS.T)


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("name", get_args(MetaSolver))
def test_the_unit_of_payoffs_does_not_matter(name: MetaSolver) -> None:
    payoff = np.array([[0.0, -0.4, 0.9, 0.1], [0.4, 0.0, -0.7, 0.2], [-0.9, 0.7, 0.0, 0.1], [-0.1, -0.2, -0.1, 0.0]])
    spread = np.random.default_rng(3).random((4, 4))

    def mixes(unit: float) -> Mixes:
        return solve(name, unit * payoff, unit * payoff.T, (unit**2 * spread, unit**2 * spread.T), 0.5 / unit)

    wanted = mixes(1.0)
    for unit in (0.01, 100.0, 1000.0):
        for mix, want in zip(mixes(unit), wanted, strict=True):
            assert list(mix) == pytest.approx(list(want), abs=1e-6)
    if name == "projected_replicator":
        assert exploitability(payoff, payoff.T, wanted) < 0.1


@settings(deadline=None, max_examples=40)
@given(payoffs, st.floats(0.01, 1.0))
def test_a_replicator_step_stays_among_probabilities(rows: list[list[float]], dt: float) -> None:
    mix = np.full(4, 0.25)
    for row in rows:
        mix = replicator_step(mix, np.array(row), dt)
        assert mix.sum() == pytest.approx(1)
        assert mix.min() >= 1e-6 * (1 - 1e-9)


def test_the_average_of_the_dynamics_is_returned() -> None:
    first = np.array([[2.0, 0.0], [0.0, 1.0]])
    found = projected_replicator(lambda _, y: first @ y, lambda _, x: -first.T @ x, (2, 2), dt=1e-2, iterations=20_000)
    assert list(found.first) == pytest.approx([1 / 3, 2 / 3], abs=0.02)


def test_a_replicator_step_measures_worth_from_the_mix_s_mean() -> None:
    # Mean 2: 0.5 + 0.1 x 0.5 x (3 - 2). Without the mean it would be 0.65 and 0.55, 0.5417 after rounding to sum 1.
    found = replicator_step(np.array([0.5, 0.5]), np.array([3.0, 1.0]), 0.1)
    assert list(found) == pytest.approx([0.55, 0.45], abs=1e-12)


def test_both_sides_take_a_replicator_step_from_the_same_mixes() -> None:
    # Two steps of matching pennies with a bias, both sides from the mixes before: the first step from (1/2, 1/2) both.
    first = np.array([[2.0, 0.0], [0.0, 1.0]])
    found = projected_replicator(
        lambda _, y: first @ y, lambda _, x: -first.T @ x, (2, 2), dt=0.1, iterations=2, skip=1
    )
    x, y = np.array([0.5, 0.5]), np.array([0.5, 0.5])
    for _ in range(2):
        ours, theirs = first @ y, -first.T @ x
        x, y = x + 0.1 * x * (ours - x @ ours), y + 0.1 * y * (theirs - y @ theirs)
    assert list(found.first) == pytest.approx(list(x), abs=1e-12)
    assert list(found.second) == pytest.approx(list(y), abs=1e-12)
