"""Regret of repeated play, and the two learners that have little of it: Hedge and regret matching. Pure.

Rounds are rows of a matrix [T, n]: what each of n actions would have paid. `played` is what was done in each: the
numbers of actions, [T], or mixes of them, [T, n].

Sources: Cesa-Bianchi and Lugosi 2006, Prediction, Learning, and Games, sections 2.2 (Hedge, there the exponentially
weighted average forecaster) and 4.2 (external regret); Hart and Mas-Colell 2000, Econometrica 68
(regret matching, here its unconditional variant). As a measure of language models: arXiv 2403.16843.
"""

from collections.abc import Callable, Sequence
from math import log, sqrt

import numpy as np
import numpy.typing as npt

from mas.core.errors import ConfigError

Array = npt.NDArray[np.float64]
Learner = Callable[[Array, Array], Array]
"""(what actions would have paid in the rounds so far [t, n], the mixes that were played [t, n]) -> the next mix [n]."""


def hindsight(payoffs: npt.ArrayLike) -> float:
    """What the best single action would have been paid over all rounds; 0 without a round."""
    rounds = _rounds(payoffs)
    return float(rounds.sum(axis=0).max()) if len(rounds) else 0.0


def external_regret(payoffs: npt.ArrayLike, played: npt.ArrayLike) -> float:
    """What the best single action would have been paid more than what was played, over all rounds.

    R = max_a sum_t u_t(a) - sum_t sum_i p_t(i) u_t(i). Below 0 where changing was better than any one action.

    Raises:
        ConfigError: `payoffs` is no matrix, or `played` are no actions or mixes of its rounds.
    """
    rounds = _rounds(payoffs)
    return hindsight(rounds) - float((rounds * mixes(played, rounds)).sum())


def hedge(payoffs: npt.ArrayLike, step: float) -> Array:
    """The next mix [n] of multiplicative weights: p(a) in proportion to exp(step * sum_t u_t(a)).

    Args:
        payoffs: of the rounds so far [t, n]; without any, all actions are as likely.
        step: see `hedge_step`.
    """
    total = _rounds(payoffs).sum(axis=0)
    weights = np.exp(step * (total - total.max()))
    return np.asarray(weights / weights.sum())


def hedge_step(rounds: int, actions: int, width: float = 1.0) -> float:
    """sqrt(8 ln n / T) / width: over T rounds external regret is then at most width sqrt(T ln n / 2), for any payoffs
    (theorem 2.2). `width`: the greatest payoff less the least."""
    return sqrt(8 * log(actions) / rounds) / width


def regret_matching(payoffs: npt.ArrayLike, played: npt.ArrayLike) -> Array:
    """The next mix [n]: p(a) in proportion to max(0, R(a)), R(a) = sum_t (u_t(a) - sum_i p_t(i) u_t(i)); where no R(a)
    is above 0, all actions are as likely.

    Args:
        payoffs: of the rounds so far [t, n]. played: in these rounds.

    Raises:
        ConfigError: as `external_regret`.
    """
    rounds = _rounds(payoffs)
    earned = (rounds * mixes(played, rounds)).sum(axis=1, keepdims=True)
    regrets = np.maximum((rounds - earned).sum(axis=0), 0)
    return regrets / regrets.sum() if regrets.any() else np.full(len(regrets), 1 / len(regrets))


def self_play(first: npt.ArrayLike, second: npt.ArrayLike, learners: tuple[Learner, Learner], rounds: int) -> Array:
    """Two learners against each other, each told what its actions would have been paid against the other's mix.

    Args:
        first, second: what both are paid, [n, m] each, by (first's, second's) action.

    Returns:
        [n, m]: how often each pair was played, the mean of p_t(i) q_t(j). With little regret of both it is nearly a
        coarse correlated equilibrium; of a zero-sum game its margins are nearly an equilibrium.
    """
    one, two = _rounds(first), _rounds(second)
    (n, m), joint = one.shape, np.zeros(one.shape)
    paid = np.zeros((rounds, n)), np.zeros((rounds, m))
    done = np.zeros((rounds, n)), np.zeros((rounds, m))
    for at in range(rounds):
        p, q = (learn(paid[seat][:at], done[seat][:at]) for seat, learn in enumerate(learners))
        done[0][at], done[1][at] = p, q
        paid[0][at], paid[1][at] = one @ q, p @ two
        joint += np.outer(p, q) / rounds
    return joint


def coarse_gap(first: npt.ArrayLike, second: npt.ArrayLike, joint: npt.ArrayLike) -> float:
    """The most that either player would gain, on average, by one action throughout instead of its part of `joint`
    [n, m]; at most 0 for a coarse correlated equilibrium (Cesa-Bianchi and Lugosi 2006, section 7.4)."""
    one, two, together = _rounds(first), _rounds(second), _rounds(joint)
    gains = (one @ together.sum(axis=0)).max() - (one * together).sum()
    other = (together.sum(axis=1) @ two).max() - (two * together).sum()
    return float(max(gains, other))


def mixes(played: npt.ArrayLike, rounds: Array) -> Array:
    """What was played as mixes [T, n].

    Raises:
        ConfigError: neither T numbers of actions nor T mixes of n.
    """
    given: Array = np.asarray(played, dtype=np.float64)
    if given.shape == rounds.shape:
        if len(given) and (given.min() < -1e-9 or np.abs(given.sum(axis=1) - 1).max() > 1e-6):
            raise ConfigError("played: the shares of each mix must be 0 at least and add up to 1")
        return given
    count, actions = rounds.shape
    if given.shape != (count,) or not _are_actions(given, actions):
        raise ConfigError(
            f"played has the shape {given.shape}: {count} rounds of {actions} actions have {count} numbers of actions, "
            f"0 to {actions - 1}, or {count} mixes of {actions}"
        )
    chosen: Array = np.eye(actions)[given.astype(int)]
    return chosen


def _are_actions(given: Array, actions: int) -> bool:
    return bool(np.all((given >= 0) & (given < actions) & (given == np.floor(given))))


def _rounds(payoffs: npt.ArrayLike | Sequence[Sequence[float]]) -> Array:
    found: Array = np.asarray(payoffs, dtype=np.float64)
    if found.ndim != 2 or not found.shape[1]:
        raise ConfigError(f"payoffs have the shape {found.shape}: one row per round is needed, one column per action")
    return found
