"""What a league's database or a checkpoint holds, read with care: it may be damaged, or written by another user."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy.engine import Row, RowMapping

from mas.config.access import Access, option_accesses, player_accesses
from mas.config.trust import check_accesses
from mas.core.errors import ConfigError
from mas.league.games import said_options
from mas.league.match import LeagueMember, PlayedGame, PlayedMove
from mas.scenarios.bridges import PREFIX


def check_sources(players: Mapping[str, str], league: str) -> None:
    """Refuse stored players that play through a server, or from a run that does not lie with the league, unless the
    user has allowed them.

    Args:
        players: name -> source. league: its file, or a database's URL.

    Raises:
        TrustError: says what they would use, and how to allow it.
        ConfigError: a source that cannot be read.
    """
    found = [access for name, source in players.items() for access in accesses_of_player(name, source, league)]
    check_accesses(found, f"league {league}")


def accesses_of_player(name: str, source: str, league: str) -> list[Access]:
    """What one player uses outside of the league.

    Raises:
        ConfigError: a source that cannot be read.
    """
    kept = None if "://" in league else members_beside(league)
    return [replace(one, named_by={}) for one in player_accesses(source, f"player {name}", kept)]


def check_game(game: str, league: str) -> None:
    """Refuse a stored game that reads files, unless the user has allowed it. Nothing of the game is built.

    Args:
        game: an id. league: its file, or a database's URL.

    Raises:
        TrustError: says what it would read, and how to allow it.
        ConfigError: an id that cannot be read, or that names code.
    """
    check_accesses(accesses_of_game(game), f"league {league}")


def accesses_of_game(game: str) -> list[Access]:
    """What the id of a game reads outside of mas.

    Raises:
        ConfigError: an id that cannot be read, or that names code.
    """
    options = {"id": game} if game.partition(":")[0] in PREFIX else said_options(game)[1]
    return [replace(one, named_by={}) for one in option_accesses(options, "game")]


def members_beside(league: str) -> Path:
    """Where a league keeps its members' adapters, if not told otherwise.

    Raises:
        ConfigError: it is a database elsewhere.
    """
    if "://" in league:
        raise ConfigError(f"--league {league} is no file beside which adapters could lie: say where, --keep DIR")
    return Path(league).with_suffix(".members")


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
