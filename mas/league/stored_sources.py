"""Checks of players and games in a league's database or a checkpoint, which another user may have written."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mas.config.access import Access, option_accesses, player_accesses
from mas.config.trust import check_accesses
from mas.core.errors import ConfigError
from mas.league.games import LeagueWorld, open_world, said_options
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


def stored_world(game: str, league: str) -> LeagueWorld:
    """A game that a league names.

    Raises:
        TrustError, ConfigError: as `check_game` and `open_world`.
    """
    check_game(game, league)
    return open_world(game)


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
