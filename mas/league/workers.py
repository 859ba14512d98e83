"""Match workers as the process that keeps the table sees them: what they are made of, and who plays which game.

What a worker makes of a fixture is a pure function of the fixture, the game and the players. So any worker may die: it
is started again, and its games are played again. Only finished games are stored, by the process that keeps the table.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console

from mas.cluster.contract import open_cluster
from mas.cluster.options import ClusterOptions
from mas.cluster.pool import WorkerPool
from mas.cluster.records import ResourceRequest
from mas.cluster.resources import with_room
from mas.config.load import checked_config, parse_override
from mas.config.options import WorkerOptions
from mas.config.servers import CHAT, RunSource, chat_options
from mas.config.trust import trusts_all
from mas.core.concurrency import together
from mas.core.errors import CallFailed, ClusterError, ConfigError
from mas.core.naming import did_you_mean
from mas.core.policy import Budget
from mas.league.games import LeagueWorld
from mas.league.match import Fixture, PlayedGame
from mas.league.match_worker import FACTORY, MatchSetup
from mas.league.players import open_players
from mas.league.store import LeagueStore
from mas.league.tournament import PlayMatch, Terms, first_fixtures, run_matches
from mas.observe.progress import counting

ALONE = WorkerOptions()
"""No workers: one process plays all games."""
_OPTIONS = (*ClusterOptions.model_fields, "worker_cpus", "worker_gpus")


def worker_options(workers: int, overrides: Sequence[str] = ()) -> WorkerOptions:
    """Options of match workers.

    Args:
        workers: how many; 0: none.
        overrides: other options of the cluster, such as `cluster.address=auto`.

    Raises:
        ConfigError: no option of a cluster, a value that does not fit, or options without workers.
    """
    values: dict[str, object] = {"workers": workers}
    for text in overrides:
        override = parse_override(text)
        section, _, name = override.key_or_group.partition(".")
        if section != "cluster" or not name:
            raise ConfigError(f"{text!r}: write options of the cluster, such as cluster.address=auto")
        if name in values:
            raise ConfigError(f"{text!r}: the number of workers and every option of the cluster are given once")
        if name not in _OPTIONS:
            raise ConfigError(f"{text!r} is no option of match workers. {did_you_mean(name, _OPTIONS)}")
        values[name] = override.value()
    if overrides and not workers:
        raise ConfigError(f"{overrides[0]!r} has no effect without workers: set workers to 1 or more, or leave it out")
    return checked_config({"cluster": values}).cluster


def logs_beside(league: str) -> Path:
    """Where the workers of a league leave what they print: beside its file, of a database elsewhere in this directory.

    Args:
        league: a file, or a database's URL.
    """
    return Path("league.workers") if "://" in league else Path(league).with_suffix(".workers")


async def played_by_workers(
    name: str, terms: Terms, store: LeagueStore, world: LeagueWorld, at_once: int, options: WorkerOptions, logs: Path
) -> list[PlayedGame]:
    """Play what is left of a tournament in workers; all its games, which are those that one process plays.

    Args:
        terms: runs among the players have a step. logs: a directory for what workers print.

    Raises:
        ConfigError: terms as in `run_matches`, more workers than games, or players as in `open_players`; before
            anything starts. ClusterError: workers cannot be started, or games cannot be played.
    """
    seats = len(world.open().spec.seats)
    left = _games_left(name, terms, store, seats, at_once, options)
    if not left:
        return store.games(name)
    setup = await _setup(terms, world, options)
    count = min(options.workers, left)
    note = partial(Console(stderr=True).print, style="dim", highlight=False, markup=False, soft_wrap=True)
    note(f"{count} match workers start; what they print is in {logs}")
    async with open_match_workers(count, setup, logs) as play:
        with counting() as counted:
            progress = partial(counted, "games")
            return await run_matches(name, terms, store, seats, play, at_once=at_once, progress=progress)


def _games_left(name: str, terms: Terms, store: LeagueStore, seats: int, at_once: int, options: WorkerOptions) -> int:
    """How many games are left to play."""
    games, workers = len(first_fixtures(terms, seats)), options.workers
    if workers > games:
        where = "each round of this tournament" if terms.rounds else "this tournament"
        raise ConfigError(f"{workers} workers for {games} games: {where} has no more; take {games} workers at most")
    if workers > at_once:
        raise ConfigError(f"{workers} workers for {at_once} games at once: raise --at-once, or take fewer workers")
    store.check_terms(name, terms.as_dict())
    return games * max(1, terms.rounds) - len(store.ids(name))


@dataclass(frozen=True, slots=True)
class PlayerSetup:
    """What workers are made of, and what they take.

    Attributes:
        options: with the names of the variables that hold keys of servers.
        threads: of numeric libraries.
    """

    matches: MatchSetup
    options: WorkerOptions
    threads: int = 1


async def _setup(terms: Terms, world: LeagueWorld, options: WorkerOptions) -> PlayerSetup:
    """What workers are made of, with all that can be refused before one starts."""
    parsed = {name: RunSource.parse(source) for name, source in terms.players.items()}
    runs = {name: source for name, source in parsed.items() if source is not None}
    others = {name: source for name, source in terms.players.items() if name not in runs}
    async with open_players(others, world, print):
        pass  # only for its errors: workers open their own
    keys = {chat_options(source).key_env for source in others.values() if source.startswith(CHAT)}
    digests, role_keys, threads = _needs_of(runs, world, options) if runs else ({}, set(), 1)
    names = sorted(key for key in keys | role_keys if key is not None)
    return PlayerSetup(
        MatchSetup(
            game=terms.game,
            players=terms.players,
            digests=digests,
            trusts_all=trusts_all(),
            directory=str(Path.cwd()),
        ),
        options.model_copy(update={"environment": (*options.environment, *names)}),
        threads,
    )


def _needs_of(
    runs: Mapping[str, RunSource], world: LeagueWorld, options: WorkerOptions
) -> tuple[dict[str, str], set[str], int]:
    """What players from runs need of a worker: digests, variables that hold keys of servers that play roles, and
    threads; no model is loaded."""
    from mas.league.trained_players import load_run, run_digest
    from mas.serving.model import device_of

    keys, threads = set[str](), 1
    for name, source in runs.items():
        setup, why = load_run(source, world).setup, ""
        if setup.team.budget.run != Budget():
            why = "its team's budget.run is of one process: leave it out"
        elif setup.engine.name != "transformers":
            why = f"each worker has its own engine, and engine={setup.engine.name} is one for all"
        elif device_of(setup.model.device).type == "cuda" and not options.worker_gpus:
            why = "it plays on a GPU, and cluster.worker_gpus=0 leaves workers none: set it to 1, or to less"
        if why:
            raise ConfigError(f"player {name!r} cannot play in workers: {why}; or play without workers")
        keys |= {*setup.role_keys}
        threads = max(threads, setup.model.threads)
    return {name: run_digest(source) for name, source in runs.items()}, keys, threads


@asynccontextmanager
async def open_match_workers(count: int, setup: PlayerSetup, logs: Path) -> AsyncIterator[PlayMatch]:
    """Start workers, and end them with the block. What is yielded plays a fixture to its end, again if the worker is
    lost; it raises ClusterError, which names the game, if the game cannot be played or workers are lost with it.

    Raises:
        NoResources: the cluster has no room for all of them; none was started. ClusterError: they cannot be started.
        MissingPackage: Ray is asked for, and not installed.
    """
    options, arguments = setup.options, msgspec.json.encode(setup.matches)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(with_room(options, count * options.worker_cpus), logs))
        request = ResourceRequest(kind="match", count=count, cpus=options.worker_cpus, gpus=options.worker_gpus)
        await cluster.reserve([request])
        spawns = [
            cluster.spawn("match", FACTORY, arguments, cpus=request.cpus, gpus=request.gpus, threads=setup.threads)
            for _ in range(count)
        ]
        pool = WorkerPool(cluster, await together(spawns, "spawn"))

        async def play(fixture: Fixture) -> PlayedGame:
            what = f"game {fixture.id!r}"
            try:
                content = await pool.call("play", msgspec.json.encode(fixture), what)
            except CallFailed as error:
                raise ClusterError(f"{what} cannot be played: {error}") from error
            return msgspec.msgpack.decode(content, type=PlayedGame)

        yield play
