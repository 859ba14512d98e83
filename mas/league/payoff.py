"""What players got from each other as a matrix with its variances, how much of it is cyclic, and its most even maximin.

`most_even_maximin` is the mix that guarantees most in a zero-sum game, of all of them the most even: linear programming
finds the value, then which players the best mixes hold and which columns they can beat; among those mixes Newton's
method finds the greatest entropy. What cannot be computed is an error, never a worse answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.linalg import solve_triangular
from scipy.optimize import linprog

from mas.core.errors import ConfigError

Matrix = npt.NDArray[np.float64]
Mix = npt.NDArray[np.float64]
Bounds = tuple[float | None, float | None]
TOLERANCE = 1e-6
"""By how much, of the largest payoff, a mix may guarantee less than the best; what is computed is far nearer."""
_ATTEMPTS = (("highs-ds", 1e-10), ("highs-ipm", 1e-10), ("highs-ds", 1e-8), ("highs-ipm", 1e-8))
"""Methods of linear programming and their tolerances, the next one where one gives up."""
_SMALLEST = 1e-5
"""A player whose share is smaller in every best mix counts as one that is never played."""
_EQUAL = 1e-9
"""Singular values below this do not tell players apart."""
_WEIGHTS = 10.0 ** np.arange(1, 10)
"""Of the entropy beside the barrier's mean, one after the other; the last entropy is off by about 1e-9."""


@dataclass(frozen=True, slots=True, eq=False)
class Payoff:
    """Means and variances of what each row's player got in games with each column's, over all seats.

    Attributes:
        players: of rows and columns.
        mean: [N, N]; 0 on the diagonal, and where nobody played.
        variance: [N, N], ddof 1; 0 where fewer than two games were played.
        games: [N, N].
    """

    players: tuple[str, ...]
    mean: Matrix
    variance: Matrix
    games: npt.NDArray[np.int64]

    @property
    def unplayed(self) -> list[tuple[str, str]]:
        """Pairs that never met."""
        size = range(len(self.players))
        return [(self.players[i], self.players[j]) for i in size for j in size if i < j and not self.games[i, j]]


def payoff_matrix(players: Sequence[str], played: Iterable[tuple[Sequence[str], Sequence[float]]]) -> Payoff:
    """The payoffs of games of two seats, or of each two of those that sat in a larger game.

    Args:
        played: of each game the players by seat and what each of them got; players that are not named are left out.

    Raises:
        ConfigError: a game with more players than payoffs or fewer.
    """
    index = {name: place for place, name in enumerate(players)}
    found: dict[tuple[int, int], list[float]] = {}
    for seated, returns in played:
        if len(seated) != len(returns):
            raise ConfigError(f"a game of {len(seated)} players with {len(returns)} payoffs")
        for seat, name in enumerate(seated):
            for other, opponent in enumerate(seated):
                if seat != other and name != opponent and name in index and opponent in index:
                    found.setdefault((index[name], index[opponent]), []).append(returns[seat])
    shape = (len(index), len(index))
    mean, variance, games = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for place, values in found.items():
        mean[place], games[place] = np.mean(values), len(values)
        variance[place] = np.var(values, ddof=1) if len(values) > 1 else 0.0
    return Payoff(tuple(players), mean, variance, games)


def cyclic_share(mean: Matrix) -> float:
    """The share of a zero-sum matrix that no rating can tell, 0 to 1: 1 for rock, paper, scissors.

    The matrix is what ratings say (row mean less column mean) and what is left, which adds up to 0 over each row;
    the share is of the sum of squares (combinatorial Hodge decomposition; Balduzzi et al. 2018, arXiv 1806.02643).

    Args:
        mean: [N, N]; only its antisymmetric part is read, which for a zero-sum game is all of it.
    """
    zero_sum = (mean - mean.T) / 2
    ratings = zero_sum.mean(axis=1)
    left = zero_sum - (ratings[:, None] - ratings[None, :])
    whole = float((zero_sum**2).sum())
    return float((left**2).sum()) / whole if whole else 0.0


def circles_p(differences: Mapping[tuple[str, str], Sequence[float]]) -> float:
    """How likely residuals as large as these are where every difference is one of two ratings, and luck.

    The F test of lack of fit: differences are fitted by ratings, weighted least squares, and what is left, with
    (N - 1) (N - 2) / 2 degrees of freedom of N players that all met, is held against how much a pair's deals vary.
    Never below 2^-(degrees of freedom within pairs), what coins reach; 1 where no pair has two deals.

    Args:
        differences: of each pair that met what the first got more than the second, one number of each deal.
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(name for pair in differences for name in pair))}
    design = np.zeros((len(differences), len(places)))
    for row, (first, second) in enumerate(differences):
        design[row, places[first]], design[row, places[second]] = 1.0, -1.0
    means = np.array([np.mean(values) for values in differences.values()])
    weights = np.sqrt([len(values) for values in differences.values()])
    within = float(sum(np.sum((np.asarray(values) - np.mean(values)) ** 2) for values in differences.values()))
    repeats = int(sum(len(values) - 1 for values in differences.values()))
    free = len(differences) - int(np.linalg.matrix_rank(design)) if differences else 0
    if free < 1 or repeats < 1:
        return 1.0
    ratings, *_ = np.linalg.lstsq(design * weights[:, None], means * weights, rcond=None)
    left = float(((means - design @ ratings) ** 2 * weights**2).sum())
    if left <= 1e-12 * float((means**2 * weights**2).sum()):
        return 1.0
    p = float(stats.f.sf(left / free / (within / repeats), free, repeats)) if within else 0.0
    return max(p, 2.0**-repeats)


class _Face(NamedTuple):
    """All best mixes: `inside`, one that plays every player any of them plays; `free` [n, k], orthogonal directions
    that change no column that all of them tie; `beaten` [n, b]: the other columns, less the value."""

    inside: Mix
    free: Matrix
    beaten: Matrix


def most_even_maximin(payoff: Matrix) -> Mix:
    """Of the rows' mixes that guarantee most, the one of the greatest entropy: as there is only one, equal rows weigh
    the same.

    Args:
        payoff: [n, m], of the row's player.

    Raises:
        ConfigError: payoffs of so different sizes that no answer can be computed.
    """
    largest = float(np.abs(payoff).max())
    if not largest:
        return np.full(len(payoff), 1 / len(payoff))
    scaled = payoff / largest
    value = _value(scaled)
    face = _face(scaled, value)
    played = face.inside > 0
    inner = face._replace(inside=face.inside[played], free=face.free[played], beaten=face.beaten[played])
    mix = np.zeros(len(payoff))
    mix[played] = _most_even(inner) if face.free.shape[1] else inner.inside
    mix /= mix.sum()
    if not float((scaled.T @ mix).min()) >= value - TOLERANCE / 4:
        raise _unsolved("what was found guarantees less than the value")
    return mix


def _value(payoff: Matrix) -> float:
    """What the best mix guarantees."""
    rows, columns = payoff.shape
    # Variables: the mix, and the guaranteed value v. Each column gives v at least.
    objective = np.append(np.zeros(rows), -1.0)
    least = np.hstack([-payoff.T, np.ones((columns, 1))])
    total = np.append(np.ones((1, rows)), [[0.0]], axis=1)
    bounds: list[Bounds] = [(0, 1)] * rows + [(None, None)]
    mix = _solved(objective, least, total, 1.0, bounds)[:-1]
    mix = np.clip(mix, 0, None)
    return float((payoff.T @ mix).min() / mix.sum())


def _face(payoff: Matrix, value: float) -> _Face:
    """By one linear programme: of mixes in any scale s, as many shares and margins as can be are 1 or more.

    Maximise sum(t) + sum(u): t <= x, u <= payoff' x - (value - 1e-10) s, sum(x) = s, t and u at most 1.
    """
    rows, columns = payoff.shape
    one, many = np.eye(rows), np.eye(columns)
    margin = np.hstack([-payoff.T, np.zeros((columns, rows)), many, np.full((columns, 1), value - 1e-10)])
    share = np.hstack([-one, one, np.zeros((rows, columns + 1))])
    total = np.concatenate([np.ones(rows), np.zeros(rows + columns), [-1.0]])[None, :]
    objective = np.concatenate([np.zeros(rows), -np.ones(rows + columns), [0.0]])
    bounds: list[Bounds] = [(0, None)] * rows + [(0, 1)] * (rows + columns) + [(1, 1 / _SMALLEST)]
    found = _solved(objective, np.vstack([margin, share]), total, 0.0, bounds)
    inside, is_played = np.clip(found[:rows], 0, None), found[rows : 2 * rows] > 0.5
    is_beaten = found[2 * rows : -1] > 0.5
    inside = np.where(is_played, inside, 0.0)
    inside /= inside.sum()
    tied = np.vstack([np.ones(rows), payoff[:, ~is_beaten].T - value])[:, is_played]
    _, sizes, directions = np.linalg.svd(tied)
    free = np.zeros((rows, directions.shape[0] - int((sizes > _EQUAL).sum())))
    free[is_played] = directions[int((sizes > _EQUAL).sum()) :].T
    return _Face(inside, free, payoff[:, is_beaten] - value)


def _solved(objective: Mix, least: Matrix, total: Matrix, sums: float, bounds: Sequence[Bounds]) -> Mix:
    """The minimum of objective @ x with least @ x <= 0 and total @ x = sums."""
    none = np.zeros(len(least))
    for method, precision in _ATTEMPTS:
        options = {"primal_feasibility_tolerance": precision, "dual_feasibility_tolerance": precision}
        found = linprog(objective, least, none, total, [sums], bounds=bounds, method=method, options=options)
        if found.status == 0:
            solution: Mix = found.x
            return solution
    raise _unsolved(str(found.message))


def _most_even(face: _Face) -> Mix:
    """Minimum of weight * sum(x ln x) - sum(ln(margins)), for weights that grow, by Newton's method."""
    mix = face.inside
    for weight in _WEIGHTS * (1 + face.beaten.shape[1]):
        for _ in range(200):
            slope = face.free.T @ _slope(face, mix, weight)
            bent = face.free / np.sqrt(mix / weight)[:, None]
            margins = (face.beaten.T @ face.free) / (face.beaten.T @ mix)[:, None]
            # the curvature is R.T @ R: its product itself would lose half of the digits near the edge of the face
            curvature = np.linalg.qr(np.vstack([bent, margins]), mode="r")
            step = face.free @ solve_triangular(curvature, solve_triangular(curvature, -slope, trans="T"))
            decrement = -float(_slope(face, mix, weight) @ step)
            if decrement <= 1e-9:
                break
            mix = _moved(face, mix, step, weight, decrement)
        else:
            raise _unsolved("Newton's method did not end")
    return mix


def _slope(face: _Face, mix: Mix, weight: float) -> Mix:
    slope: Mix = weight * (np.log(mix) + 1) - face.beaten @ (1 / (face.beaten.T @ mix))
    return slope


def _moved(face: _Face, mix: Mix, step: Mix, weight: float, decrement: float) -> Mix:
    """So far along the step that all stays positive and the slope has not turned upwards."""
    have = np.concatenate([mix, face.beaten.T @ mix])
    change = np.concatenate([step, face.beaten.T @ step])
    falling = change < 0
    share = min(1.0, 0.99 * float((have[falling] / -change[falling]).min(initial=np.inf)))
    for _ in range(60):
        moved: Mix = mix + share * step
        if float(_slope(face, moved, weight) @ step) <= 0.1 * decrement:
            return moved
        share /= 2
    raise _unsolved("Newton's method found no way down")


def _unsolved(why: str) -> ConfigError:
    return ConfigError(
        f"no equilibrium of these payoffs could be computed ({why}): they are of too different sizes; "
        "take projected_replicator or alpha_rank"
    )
