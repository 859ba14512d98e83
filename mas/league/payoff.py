"""What players got from each other: the empirical payoff matrix, with its variances, and how much of it is cyclic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from mas.core.errors import ConfigError

Matrix = npt.NDArray[np.float64]


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
