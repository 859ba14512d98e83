"""Meta-solvers: how often each player of a population should be played, from what they got from each other.

Of two populations that meet, A [n, m] holds what the first one's players get, B [n, m] what the second one's get. One
population that plays itself is `A = mean, B = mean.T`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from mas.core.errors import ConfigError
from mas.league.payoff import Matrix, Mix, most_even_maximin

Fitness = Callable[[Mix, Mix], Mix]
"""Probabilities of the own players and of the others' -> what each own player is worth."""

MetaSolver = Literal["uniform", "nash", "projected_replicator", "risk_averse", "alpha_rank"]

FLOOR = 1e-6
"""Least probability of a player in projected replicator dynamics."""
POPULATION = 50
"""Of alpha-rank: m."""
ZERO_SUM = 1e-9
"""By how much, of the largest payoff, payoffs of a zero-sum game may miss 0."""


class Mixes(NamedTuple):
    """Probabilities of the first population's players and of the second one's."""

    first: Mix
    second: Mix


def solve(
    name: MetaSolver, first: Matrix, second: Matrix, variances: tuple[Matrix, Matrix] | None = None, risk: float = 0.5
) -> Mixes:
    """The mixes that a meta-solver chooses.

    The unit of the payoffs does not matter: they are divided by the largest one. `risk_averse` alone compares means
    with variances: a hundredth of the risk is the same for payoffs a hundred times as large.
    `alpha_rank` is always of two populations, `alpha_rank_of_two`: also where both have the same payoffs, a mutant of
    one meets the other's player and not its own kind.

    Args:
        variances: of `first` and `second`, read by `risk_averse` alone; None: single games do not vary.
        risk: lambda of `risk_averse`, per unit of the payoffs.

    Raises:
        ConfigError: matrices of different shape, or `nash` of a game that is not zero-sum.
    """
    if first.shape != second.shape:
        raise ConfigError(f"payoffs of shape {first.shape} and {second.shape} are not of one game")
    if name == "risk_averse":
        return risk_averse(first, second, variances, risk)
    largest = max(float(np.abs(first).max()), float(np.abs(second).max())) or 1.0
    first, second = first / largest, second / largest
    match name:
        case "uniform":
            return Mixes(np.full(first.shape[0], 1 / first.shape[0]), np.full(first.shape[1], 1 / first.shape[1]))
        case "nash":
            return nash(first, second)
        case "projected_replicator":
            return projected_replicator(lambda _, other: first @ other, lambda _, other: second.T @ other, first.shape)
        case "alpha_rank":
            return alpha_rank_of_two(first, second)


def exploitability(first: Matrix, second: Matrix, mixes: Mixes) -> float:
    """NashConv of mixes in the game of these matrices: what both sides together could gain by a best answer; 0 in an
    equilibrium."""
    own, other = first @ mixes.second, second.T @ mixes.first
    return float(own.max() - mixes.first @ own + other.max() - mixes.second @ other)


def nash(first: Matrix, second: Matrix) -> Mixes:
    """A Nash equilibrium of a zero-sum game, of all of them that of the greatest entropy for each side, so that equal
    players weigh the same (Nash averaging; Balduzzi et al. 2018, arXiv 1806.02643).

    Raises:
        ConfigError: the game is not zero-sum, or its payoffs are of so different sizes that nothing can be computed.
    """
    if not is_zero_sum(first, second):
        raise ConfigError(
            f"nash needs a zero-sum game, in this one payoffs of a game add up to {np.abs(first + second).max():g}: "
            "take projected_replicator or risk_averse"
        )
    even = most_even_maximin(first)
    return Mixes(even, even if np.array_equal(first, second.T) else most_even_maximin(second.T))


def is_zero_sum(first: Matrix, second: Matrix) -> bool:
    """Whether what one side gets is what the other one loses, but for rounding."""
    return bool(np.abs(first + second).max() <= ZERO_SUM * np.abs(first).max())


def projected_replicator(
    own: Fitness, other: Fitness, shape: tuple[int, ...], *, dt: float = 1e-2, iterations: int = 10_000, skip: int = 0
) -> Mixes:
    """Projected replicator dynamics (Lanctot et al. 2017, arXiv 1711.00832, section 3.1): the average of all steps but
    the first `skip`.

    x <- project(x + dt x (u - x.u)), u each player's worth against the other side; both sides begin uniform.

    Args:
        own, other: worth of the first and the second side's players.
        shape: players of each side.
        dt, iterations: the paper's codes take 1e-3 and 100,000, the same length of time in smaller steps.
    """
    first, second = (np.full(size, 1 / size) for size in shape)
    total_first, total_second = np.zeros(shape[0]), np.zeros(shape[1])
    for step in range(iterations):
        ours, theirs = own(first, second), other(second, first)
        first, second = replicator_step(first, ours, dt), replicator_step(second, theirs, dt)
        if step >= skip:
            total_first += first
            total_second += second
    return Mixes(total_first / (iterations - skip), total_second / (iterations - skip))


def replicator_step(mix: Mix, worth: Mix, dt: float) -> Mix:
    """One step of one side, projected onto the probabilities of at least 1e-6."""
    moved: Mix = mix + dt * mix * (worth - mix @ worth)
    if moved.min() >= FLOOR:
        # The step keeps the sum; only rounding has to be taken back.
        moved /= moved.sum()
        return moved
    projected: Mix = FLOOR + _onto_simplex(moved - FLOOR, 1 - FLOOR * len(mix))
    return projected


def _onto_simplex(values: Mix, total: float) -> Mix:
    """The nearest point of non-negative numbers that add up to `total` (Held, Wolfe and Crowder 1974)."""
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.nonzero(falling > excess)[0][-1])
    nearest: Mix = np.maximum(values - excess[last], 0.0)
    return nearest


def risk_averse(first: Matrix, second: Matrix, variances: tuple[Matrix, Matrix] | None, risk: float) -> Mixes:
    """Mixes that maximise p.m - risk * p.C p: the mean of what a side gets less its variance, as of a portfolio.

    Players whose payoffs go against each other hedge. Risk-averse equilibrium; Slumbers et al., arXiv 2205.15434.

    m: means of the own players against the opponent's mix. C: their covariances over that mix, and on the diagonal the
    variance of single games, which are independent. The paper plays fictitiously; here it is replicator dynamics with
    the gradient m - 2 risk C p, of whose steps the first half is left out. Worth is divided by the most it can be, so
    that the dynamics run as far whatever the unit.
    """
    spread = variances or (np.zeros_like(first), np.zeros_like(second))
    largest = max(float(np.abs(first).max()), float(np.abs(second).max()))
    varies = max(float(spread[0].max()), float(spread[1].max()))
    most = largest + 2 * abs(risk) * (largest**2 + varies) or 1.0

    def worth(payoff: Matrix, variance: Matrix) -> Fitness:
        def of(own: Mix, other: Mix) -> Mix:
            means = payoff @ other
            covariance = (payoff * other) @ payoff.T - np.outer(means, means) + np.diag(variance @ other)
            return (means - 2 * risk * covariance @ own) / most

        return of

    own, others = worth(first, spread[0]), worth(second.T, spread[1].T)
    return projected_replicator(own, others, first.shape, skip=5_000)


def alpha_rank(payoff: Matrix, *, alpha: float = 100.0) -> Mix:
    """The share of time that evolution spends at each player (alpha-rank; Omidshafiei et al. 2019, Sci. Rep. 9:9937),
    of one population that plays itself.

    A mutant of j takes over a population of i with probability (1 - e^-d) / (1 - e^-(m d)), d = alpha * (what j gets
    from i - what i gets from j), 1 / m where d is 0; the answer is where that chain stays in the long run.

    Args:
        payoff: [N, N].
        alpha: how hard selection is, for payoffs of about 1.
    """
    return _long_run(_taken_over(payoff.T - payoff, alpha))


def alpha_rank_of_two(first: Matrix, second: Matrix, *, alpha: float = 100.0) -> Mixes:
    """Alpha-rank of two populations that play each other: each player's share of time.

    A state is a player of each side. A mutant of either side, each as likely, takes over as in `alpha_rank`, d =
    alpha * (what it gets from the other side's player - what the one before it gets).

    Args:
        first, second: [n, m].
    """
    n, m = first.shape
    rates = np.full((n, m, n, m), -np.inf)
    for column in range(m):
        own = first[:, column]
        rates[:, column, :, column] = _taken_over(own[None, :] - own[:, None], alpha)
    for row in range(n):
        own = second[row]
        rates[row, :, row, :] = _taken_over(own[None, :] - own[:, None], alpha)
    mass = _long_run(rates.reshape(n * m, n * m)).reshape(n, m)
    return Mixes(mass.sum(axis=1), mass.sum(axis=0))


def _taken_over(better: Matrix, alpha: float) -> Matrix:
    """How likely a mutant takes a whole population over, by how much better off it is: natural logarithms, as one that
    is worse off by 1 takes over once in e^4900 times."""
    gain = alpha * better
    even = np.abs(gain) < 1e-12
    size = np.where(even, 1.0, np.abs(gain))
    # Both terms of a loss d < 0 are multiplied by e^(m d), so that no power overflows.
    lost = (POPULATION - 1) * np.minimum(gain, 0.0)
    found: Matrix = np.where(
        even, -np.log(POPULATION), lost + np.log(-np.expm1(-size)) - np.log(-np.expm1(-POPULATION * size))
    )
    return found


def _long_run(rates: Matrix) -> Mix:
    """Where an irreducible chain stays, by logarithms of its rates; its diagonal is not read, and a common factor of
    all rates does not matter.

    States are left out one after the other, the last one first (Grassmann, Taksar and Heyman 1985): it only adds,
    multiplies and divides, so that in logarithms rates of any size count.
    """
    rates, size = rates.copy(), len(rates)
    np.fill_diagonal(rates, -np.inf)
    for last in range(size - 1, 0, -1):
        rates[:last, last] -= np.logaddexp.reduce(rates[last, :last])
        around = rates[:last, last, None] + rates[None, last, :last]
        rates[:last, :last] = np.logaddexp(rates[:last, :last], around)
    stays = np.zeros(size)
    for state in range(1, size):
        stays[state] = np.logaddexp.reduce(stays[:state] + rates[:state, state])
    mass = np.exp(stays - stays.max())
    found: Mix = mass / mass.sum()
    return found
