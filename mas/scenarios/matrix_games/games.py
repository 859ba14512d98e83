"""Matrix games for two."""

from collections.abc import Mapping
from typing import NamedTuple


class MatrixGame(NamedTuple):
    """What both players are paid.

    Attributes:
        actions: one letter each; both players have the same. Letters stand for what the game's story calls them (`A`
            is rock, silence, the stag, ...), so that it is the payoffs that count, not a story that a model knows.
        row, column: payoffs of the two by own and other's action: `row[i][j]` when row plays i and column j, and
            `column[j][i]` for the same pair. All are from -1 to 1.
    """

    actions: str
    row: tuple[tuple[float, ...], ...]
    column: tuple[tuple[float, ...], ...]

    def best_reply(self, theirs: str) -> str:
        """What pays row most against an action of column; the first of equals."""
        other = self.actions.index(theirs)
        return max(self.actions, key=lambda mine: self.row[self.actions.index(mine)][other])

    def told(self, is_row: bool) -> str:
        """The rules as one player is told them: what each pair of actions pays it."""
        pays = self.row if is_row else self.column
        pairs = [
            f"{mine} against {theirs} pays {pays[one][other]:g}"
            for one, mine in enumerate(self.actions)
            for other, theirs in enumerate(self.actions)
        ]
        return ", ".join(pairs)

    def pays(self, mine: str, theirs: str) -> float:
        """What row is paid for one round."""
        return self.row[self.actions.index(mine)][self.actions.index(theirs)]

    def costs(self, mine: str, theirs: str) -> float:
        """What column is paid for the same round."""
        return self.column[self.actions.index(theirs)][self.actions.index(mine)]


def _symmetric(actions: str, row: tuple[tuple[float, ...], ...]) -> MatrixGame:
    return MatrixGame(actions, row, row)


GAMES: Mapping[str, MatrixGame] = {
    "rock_paper_scissors": _symmetric("ABC", ((0, -1, 1), (1, 0, -1), (-1, 1, 0))),
    "matching_pennies": MatrixGame("AB", ((1, -1), (-1, 1)), ((-1, 1), (1, -1))),
    "prisoners_dilemma": _symmetric("AB", ((0.6, 0.0), (1.0, 0.2))),
    "stag_hunt": _symmetric("AB", ((1.0, 0.0), (0.6, 0.6))),
    "chicken": _symmetric("AB", ((0.6, 0.2), (1.0, 0.0))),
    "coordination": _symmetric("AB", ((1.0, 0.0), (0.0, 1.0))),
}
