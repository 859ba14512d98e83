"""What players got from each other: the empirical payoff matrix, with its variances, and how much of it is cyclic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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


def as_matrix(rows: Any) -> Matrix:
    """Rows of numbers as a matrix of float64.

    Raises:
        ConfigError: not a rectangle of finite numbers.
    """
    try:
        found = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"not a matrix of numbers: {error}") from error
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise ConfigError(f"not a matrix of finite numbers: shape {found.shape}")
    return found
