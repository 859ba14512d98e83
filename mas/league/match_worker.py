"""A match worker: the process that plays games of a tournament for another one that keeps the table."""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mas.config.servers import RunSource
from mas.config.trust import set_trust
from mas.core.errors import ConfigError
from mas.league.games import open_world
from mas.league.match import Chance, Fixture, LocalGames, Player
from mas.league.players import Scripted, open_players

FACTORY = "mas.league.match_worker:make"


class MatchSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is made of.

    Attributes:
        game: its id.
        players: name -> source, of runs with a step if there are checkpoints.
        digests: name -> SHA-256 of the files of a run, see `mas.league.trained_players.run_digest`.
        trusts_all: whether all that stored runs name is allowed.
        directory: where relative paths begin, if it is there.
    """

    game: str
    players: Mapping[str, str]
    digests: Mapping[str, str]
    trusts_all: bool
    directory: str


class MatchWorker:
    """Plays fixtures, as many at once as it is asked for; what it returns follows from the fixture and the setup."""

    def __init__(self, games: LocalGames, stack: AsyncExitStack) -> None:
        self._games, self._stack = games, stack

    async def play(self, payload: bytes) -> bytes:
        """The game of a fixture, in MessagePack."""
        fixture = msgspec.json.decode(payload, type=Fixture)
        return msgspec.msgpack.encode(await self._games.play(fixture))

    async def close(self) -> None:
        await self._stack.aclose()


@dataclass(frozen=True, slots=True)
class _ThreadedPlayer:
    """A player that computes in a thread of its own, so that heartbeats are answered meanwhile."""

    player: Scripted
    thread: ThreadPoolExecutor

    async def move(self, asked: Chance) -> str:
        return await asyncio.get_running_loop().run_in_executor(self.thread, self.player.choose, asked)


async def make(arguments: bytes) -> MatchWorker:
    """A worker; `arguments`: a `MatchSetup` as JSON.

    Raises:
        ConfigError: the files of a run are not those that the tournament began with. Otherwise as `open_players`.
    """
    setup = msgspec.json.decode(arguments, type=MatchSetup)
    set_trust(setup.trusts_all)
    _enter(setup.directory)
    _check_digests(setup)
    world = open_world(setup.game)
    async with AsyncExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(1, "players"))
        opened = await stack.enter_async_context(open_players(setup.players, world, print))
        players: dict[str, Player] = {
            name: _ThreadedPlayer(player, thread) if isinstance(player, Scripted) else player
            for name, player in opened.items()
        }
        return MatchWorker(LocalGames(world.open, players), stack.pop_all())


def _enter(directory: str) -> None:
    if Path(directory).is_dir():
        os.chdir(directory)


def _check_digests(setup: MatchSetup) -> None:
    if not setup.digests:
        return
    from mas.league.trained_players import run_digest

    for name, digest in setup.digests.items():
        source = RunSource.parse(setup.players[name])
        if source is None or run_digest(source) != digest:
            raise ConfigError(
                f"player {name!r}: the files of {setup.players[name]} are others than when the tournament was started: "
                "start it again when nothing writes to the run; workers on other machines need the same files"
            )
