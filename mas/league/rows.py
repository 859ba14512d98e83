"""Games, members and terms from the rows of a league's database, which may be damaged."""

from typing import Any

import msgspec
from sqlalchemy.engine import Row, RowMapping

from mas.core.errors import ConfigError
from mas.league.match import LeagueMember, PlayedGame, PlayedMove


def game_of(row: Row[Any]) -> PlayedGame | str:
    """The game, or why the row holds none."""
    try:
        game = PlayedGame(
            id=row.id,
            round=msgspec.convert(row.round, int),
            number=msgspec.convert(row.number, int),
            seed=int(row.seed),
            players=msgspec.json.decode(row.players, type=tuple[str, ...]),
            returns=msgspec.json.decode(row.returns, type=tuple[float, ...]),
            moves=msgspec.json.decode(row.moves, type=tuple[PlayedMove, ...]),
        )
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        return str(error)
    same = len(game.players) == len(game.returns) > 0
    return game if same else f"{len(game.players)} players and {len(game.returns)} returns"


def member_of(row: RowMapping) -> LeagueMember:
    """The member of a row.

    Raises:
        ConfigError: the row holds none.
    """
    try:
        notes = msgspec.json.decode(row["notes"], type=dict[str, float])
        # Names of columns are a subclass of str here, which msgspec refuses.
        return msgspec.convert({**{str(name): value for name, value in row.items()}, "notes": notes}, LeagueMember)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"member {row['name']!r} of this league is damaged ({error}): restore the file from a copy; its "
            "tournaments can be read, as by mas league table"
        ) from error


def terms_of(text: Any) -> dict[str, Any] | str:
    """Terms of a tournament, or why the text holds none."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        return str(error)
    is_whole = isinstance(found.get("players"), dict) and isinstance(found.get("game"), str)
    return found if is_whole else "it names no game and players"
