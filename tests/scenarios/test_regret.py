"""Regret as property: of whatever is played, of Hedge and of regret matching whatever the payoffs are."""

from functools import partial
from itertools import product
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.core.errors import ConfigError
from mas.scenarios.regret import (
    coarse_gap,
    external_regret,
    hedge,
    hedge_step,
    hindsight,
    mixes,
    regret_matching,
    self_play,
)

RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=float)


@st.composite
def rounds(draw: st.DrawFn, most: int = 25) -> np.ndarray:
    """Payoffs in [0, 1], [T, n]: often of the kind that is worst for who follows the leader."""
    count, actions = draw(st.integers(1, most)), draw(st.integers(2, 5))
    entry = st.one_of(st.sampled_from((0.0, 1.0)), st.floats(0, 1, width=32))
    return np.array(draw(st.lists(st.lists(entry, min_size=actions, max_size=actions), min_size=count, max_size=count)))


def swap_regret(payoffs: np.ndarray, played: np.ndarray) -> float:
    """What would have been paid more if each action had been exchanged, wherever it was played, for the best one there.

    R = sum_i max_j sum_t p_t(i) (u_t(j) - u_t(i)). Never below 0, nor below `external_regret`.
    Source: Cesa-Bianchi and Lugosi 2006, section 4.4.
    """
    rounds = np.asarray(payoffs, dtype=float)
    chances = mixes(played, rounds)
    instead = chances.T @ rounds
    return float((instead.max(axis=1) - instead.diagonal()).sum()) if len(rounds) else 0.0


def hedge_bound(rounds: int, actions: int, width: float = 1.0) -> float:
    """The most external regret of Hedge's mixes over T rounds, whatever the payoffs are: width sqrt(T ln n / 2).

    Source: Cesa-Bianchi and Lugosi 2006, theorem 2.2.
    """
    return width * sqrt(rounds * log(actions) / 2)


def matching_bound(rounds: int, actions: int, width: float = 1.0) -> float:
    """The most external regret of regret matching's mixes over T rounds: width sqrt(T n).

    Source: Zinkevich et al. 2007, Regret Minimization in Games with Incomplete Information, theorem 3.
    """
    return width * sqrt(rounds * actions)


@settings(deadline=None)
@given(rounds(), st.randoms())
def test_regret_of_actions_is_what_trying_all_of_them_says(payoffs: np.ndarray, random) -> None:
    count, actions = payoffs.shape
    played = [random.randrange(actions) for _ in range(count)]
    paid = sum(payoffs[at, action] for at, action in enumerate(played))
    by_hand = max(sum(payoffs[at, always] for at in range(count)) for always in range(actions)) - paid
    assert external_regret(payoffs, played) == pytest.approx(by_hand)
    if actions <= 3:
        swaps = product(range(actions), repeat=actions)
        best = max(sum(payoffs[at, swap[action]] for at, action in enumerate(played)) for swap in swaps)
        assert swap_regret(payoffs, played) == pytest.approx(best - paid)
    assert swap_regret(payoffs, played) >= max(0.0, external_regret(payoffs, played)) - 1e-9
    assert external_regret(payoffs, np.eye(actions)[played]) == pytest.approx(by_hand), "a mix of one action"


@settings(deadline=None)
@given(rounds())
def test_the_best_single_action_has_none_and_no_action_has_less(payoffs: np.ndarray) -> None:
    count, actions = payoffs.shape
    always = [external_regret(payoffs, [action] * count) for action in range(actions)]
    assert min(always) == pytest.approx(0, abs=1e-9)
    even = external_regret(payoffs, np.full(payoffs.shape, 1 / actions))
    assert even == pytest.approx(np.mean(always), abs=1e-9), "regret is linear in what is played"
    assert hindsight(payoffs) == payoffs.sum(axis=0).max()


@settings(deadline=None)
@given(rounds(), st.floats(0.1, 10))
def test_hedge_stays_under_its_bound_whatever_the_payoffs(payoffs: np.ndarray, width: float) -> None:
    payoffs, (count, actions) = payoffs * width - width / 2, payoffs.shape
    step = hedge_step(count, actions, width)
    played = [hedge(payoffs[:at], step) for at in range(count)]
    assert external_regret(payoffs, played) <= hedge_bound(count, actions, width) + 1e-9


@settings(deadline=None)
@given(rounds(), st.floats(0.1, 10))
def test_so_does_regret_matching(payoffs: np.ndarray, width: float) -> None:
    payoffs, (count, actions) = payoffs * width - width / 2, payoffs.shape
    played: list[np.ndarray] = []
    for at in range(count):
        played.append(regret_matching(payoffs[:at], np.reshape(played, (at, actions))))
    assert external_regret(payoffs, played) <= matching_bound(count, actions, width) + 1e-9


def test_the_learners_against_who_always_pays_the_other_action() -> None:
    """Who always plays the best action so far gets nothing here; the bounds are not idle."""
    payoffs = np.eye(2)[[at % 2 for at in range(400)]]
    payoffs[0] = (0.5, 0.0)
    leader = [int(payoffs[:at].sum(axis=0).argmax()) for at in range(400)]
    assert external_regret(payoffs, leader) > 150
    hedged = [hedge(payoffs[:at], hedge_step(400, 2)) for at in range(400)]
    assert external_regret(payoffs, hedged) < hedge_bound(400, 2) == pytest.approx(11.77, abs=0.01)


def test_numbers_by_hand() -> None:
    payoffs = [[1, 0], [0, 1], [1, 0]]
    assert hedge([[1.0, 0.0]], np.log(3)) == pytest.approx([0.75, 0.25])
    assert regret_matching(payoffs, [1, 1, 1]) == pytest.approx([1, 0])
    assert regret_matching([[2, 1, 0]], [[0, 0, 1]]) == pytest.approx([2 / 3, 1 / 3, 0])
    assert regret_matching(np.zeros((0, 4)), np.zeros((0, 4))) == pytest.approx([0.25] * 4)
    assert (external_regret(payoffs, [0, 1, 0]), swap_regret(payoffs, [0, 1, 0])) == (-1, 0)
    assert (external_regret(payoffs, [1, 0, 1]), swap_regret(payoffs, [1, 0, 1])) == (2, 3)
    assert hedge_bound(200, 3) == pytest.approx((200 * np.log(3) / 2) ** 0.5)


@pytest.mark.parametrize("kind", ["hedge", "regret_matching"])
def test_self_play_ends_near_the_equilibrium_of_a_zero_sum_game(kind: str) -> None:
    # A game whose equilibrium is not where the learners begin, and rock, paper, scissors with a weight on one win.
    for game, mix in (([[2, -1], [-1, 1]], [0.4, 0.6]), ([[0, -1, 2], [1, 0, -1], [-2, 1, 0]], [0.25, 0.5, 0.25])):
        payoff, total = np.array(game, dtype=float), 3000
        learner = regret_matching
        if kind == "hedge":
            learner = partial(_hedge, step=hedge_step(total, len(payoff), payoff.max() - payoff.min()))
        joint = self_play(payoff, -payoff, (learner, learner), total)
        width = payoff.max() - payoff.min()
        assert coarse_gap(payoff, -payoff, joint) <= matching_bound(total, len(payoff), width) / total
        assert joint.sum(axis=1) == pytest.approx(mix, abs=0.05)
        assert joint.sum(axis=0) == pytest.approx(mix, abs=0.05)


def _hedge(paid: np.ndarray, _: np.ndarray, step: float) -> np.ndarray:
    return hedge(paid, step)


def test_rock_paper_scissors_is_played_evenly_after_a_bad_start() -> None:
    """The learners begin at 1/3 each, where nothing moves them; so one of them is made to play rock at first."""

    def begins_with_rock(paid: np.ndarray, played: np.ndarray) -> np.ndarray:
        return np.array([1.0, 0, 0]) if len(paid) < 20 else regret_matching(paid, played)

    joint = self_play(RPS, -RPS, (begins_with_rock, regret_matching), 4000)
    assert joint.sum(axis=1) == pytest.approx([1 / 3] * 3, abs=0.04)
    assert joint.sum(axis=0) == pytest.approx([1 / 3] * 3, abs=0.04)
    assert not np.allclose(joint.sum(axis=1), 1 / 3, atol=1e-6), "it did move"


def test_self_play_of_chicken_is_nearly_a_coarse_correlated_equilibrium() -> None:
    row = np.array([[0.6, 0.2], [1.0, 0.0]])
    joint = self_play(row, row.T, (regret_matching, regret_matching), 2000)
    assert joint.sum() == pytest.approx(1)
    assert coarse_gap(row, row.T, joint) <= matching_bound(2000, 2) / 2000
    assert coarse_gap(row, row.T, [[0, 0], [0, 1]]) == pytest.approx(0.2), "both dare: each would rather not"
    assert coarse_gap(row, row.T, [[0, 0.5], [0.5, 0]]) < 0, "taking turns is stable"


@pytest.mark.parametrize(
    ("payoffs", "played", "message"),
    [
        ([1.0, 2.0], [0, 1], r"shape \(2,\): one row per round"),
        ([[1.0, 2.0]], [2], "1 numbers of actions, 0 to 1, or 1 mixes of 2"),
        ([[1.0, 2.0]], [0.5], "0 to 1"),
        ([[1.0, 2.0]], [0, 1], r"shape \(2,\): 1 rounds of 2 actions"),
        ([[1.0, 2.0]], [[0.5, 0.6]], "add up to 1"),
        ([[1.0, 2.0]], [[1.5, -0.5]], "must be 0 at least"),
    ],
)
def test_what_is_no_play_is_refused(payoffs: list, played: list, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        external_regret(payoffs, played)
