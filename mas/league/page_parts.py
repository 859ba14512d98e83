"""What pages about a tournament share, the exported page and those of the studio: the table of pairs with its colours,
tests, and games move by move. Their HTML is in `tournament_parts.html`, their looks in `tournament.css`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mas.core.environment import Environment
from mas.league.match import PlayedGame, PlayedMove, replay
from mas.league.payoff import Payoff, payoff_matrix
from mas.league.standings import Standings
from mas.league.tables import difference_cells

TEMPLATES = Path(__file__).parent
_LEVELS = 4
"""Strengths of the colour of a cell, of winning as of losing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCell:
    """What the row's player got against the column's.

    Attributes:
        level: of the colour, -4 (the least) to 4; 0: as much as the other.
        about: the same in words.
    """

    row: str
    column: str
    text: str
    level: int
    about: str


@dataclass(frozen=True, slots=True)
class GameStep:
    """How a game stood after a step, and the moves of that step: none at the beginning, several if made at once."""

    board: str
    moves: tuple[PlayedMove, ...]


def win_rates(table: Standings, games: Sequence[PlayedGame]) -> list[list[PairCell | None]]:
    """Points per game of each two, in the ladder's order: 1 for a game that was won, shared by equals."""
    points = payoff_matrix(table.payoff.players, [(game.players, game.points) for game in games])
    even = 1 / max((len(game.players) for game in games), default=2)
    return _cells(table, points, "{:.0%}", lambda mean: (mean - even) / (even if mean < even else 1 - even))


def payoffs(table: Standings) -> list[list[PairCell | None]]:
    """The mean payoffs of each two, in the ladder's order."""
    largest = max(1e-12, float(abs(table.payoff.mean).max()))
    return _cells(table, table.payoff, "{:+.2f}", lambda mean: mean / largest)


def _cells(table: Standings, of: Payoff, form: str, strength: Callable[[float], float]) -> list[list[PairCell | None]]:
    order = [of.players.index(row.name) for row in table.standings]

    def cell(i: int, j: int) -> PairCell | None:
        if not of.games[i, j]:
            return None
        mean, spread = float(of.mean[i, j]), float(of.variance[i, j]) ** 0.5
        about = (
            f"{of.players[i]} against {of.players[j]}: {int(of.games[i, j])} games, mean {mean:.3f}, "
            f"standard deviation {spread:.2f}"
        )
        level = round(_LEVELS * strength(mean))
        return PairCell(row=of.players[i], column=of.players[j], text=form.format(mean), level=level, about=about)

    return [[cell(i, j) for j in order] for i in order]


def difference_tables(table: Standings) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Title and rows of each table of tests: who is compared, difference, effect, p."""
    kinds = (("In their own games", table.comparisons), ("Against all others", table.against_others))
    return [
        (title, [(f"{one.first} − {one.second}", *difference_cells(one)) for one in comparisons])
        for title, comparisons in kinds
        if comparisons
    ]


def game_steps(game: Environment, played: PlayedGame) -> list[GameStep]:
    """A game move by move; the first step is its beginning.

    Raises:
        EnvironmentFault: see `replay`.
    """
    boards = replay(game, played)
    moves: list[list[PlayedMove]] = [[] for _ in boards]
    for move in played.moves:
        moves[move.step + 1].append(move)
    return [GameStep(board, tuple(made)) for board, made in zip(boards, moves, strict=True)]
