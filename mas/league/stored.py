"""Players that a league's database or a checkpoint names, where somebody else may have written it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mas.config.access import Access, is_inside, server_access
from mas.config.trust import check_accesses
from mas.core.errors import ConfigError
from mas.league.sources import CHAT, RunSource


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
    where, run = f"player {name}", RunSource.parse(source)
    if run is not None:
        kept = None if "://" in league else members_beside(league)
        is_kept = is_inside(run.path, kept)
        return [] if is_kept else [Access("file", f"play with the run {run.path.resolve()}", where, {})]
    if not source.startswith(CHAT):
        return []
    from mas.league.chat import chat_options

    return [replace(server_access(chat_options(source), where), named_by={})]


def members_beside(league: str) -> Path:
    """Where a league keeps its members' adapters, if not told otherwise.

    Raises:
        ConfigError: it is a database elsewhere.
    """
    if "://" in league:
        raise ConfigError(f"--league {league} is no file beside which adapters could lie: say where, --keep DIR")
    return Path(league).with_suffix(".members")
