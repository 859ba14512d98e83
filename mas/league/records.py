"""What is kept of a game: enough for every table, and to tell it move by move."""

import msgspec


class PlayedMove(msgspec.Struct, frozen=True):
    """What one seat said at one step; `is_legal`: whether it moved the game."""

    step: int
    seat: str
    player: str
    text: str
    is_legal: bool = True


class PlayedGame(msgspec.Struct, frozen=True, kw_only=True):
    """One game that was played to its end.

    Attributes:
        id: of its fixture, unique in its tournament.
        round, number, seed: of its fixture.
        players: by seat; `returns`: what each of them got, in the same order.
        moves: all of them in order; those of one step were made at once.
    """

    id: str
    round: int
    number: int
    seed: int
    players: tuple[str, ...]
    returns: tuple[float, ...]
    moves: tuple[PlayedMove, ...]

    @property
    def points(self) -> tuple[float, ...]:
        """By seat: 1 for having more than all others, 0 for less than somebody, shared by those who have the most."""
        best = max(self.returns)
        return tuple(1 / self.returns.count(best) if got == best else 0.0 for got in self.returns)

    @property
    def illegal(self) -> dict[str, int]:
        """Player -> moves that were not legal, of those who made any."""
        found: dict[str, int] = {}
        for move in self.moves:
            if not move.is_legal:
                found[move.player] = found.get(move.player, 0) + 1
        return found


class LeagueMember(msgspec.Struct, frozen=True, kw_only=True):
    """A player that a league knows.

    Attributes:
        name: unique in its league.
        source: how it is opened again, as `random` or `run:runs/kuhn@20`.
        parent: the member it was trained from, None for the first.
        step: training steps behind it.
        notes: what the gate measured that let it in, and the like.
    """

    name: str
    source: str
    parent: str | None = None
    step: int = 0
    notes: dict[str, float] = {}
