"""Opponents of a training run: players of a league, on the engine of the team that is trained.

    pool = open_pool(config, scenario)
    train_in_directory(config, scenario, opponents=pool)

Imported when a run has opponents, as it loads models.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from random import Random

from mas.algorithms.parts.opponents import SELF, OpponentsOptions
from mas.config.options import Config
from mas.config.servers import CHAT, RunSource, chat_options
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.scenario import Scenario
from mas.league.games import LeagueWorld, full_options
from mas.league.match import Player, chance_of
from mas.league.matchmaking import Distribution, draw, matched
from mas.league.players import AtRandom, Scripted, open_chat, pinned, scripted
from mas.league.store import LeagueStore
from mas.league.stored_sources import check_sources
from mas.league.trained_players import LoadedRun, base_parts, game_id, load_run, seated
from mas.serving.model import BaseModel
from mas.serving.store import ServingEngine
from mas.training.checkpoint import list_checkpoints, step_of
from mas.training.opponents import FILE, kept_players
from mas.training.sampling.sampler import Opponent
from mas.training.saved import adapter_directories


class LeaguePool:
    """What `algorithm.opponents` names; satisfies `mas.training.opponents.Pool`.

    Args:
        config: of the run that trains. scenario: the one that it names.
        players: name -> source, oldest first; runs without a step are written down with their latest one.

    Raises:
        ConfigError: no such player, one that cannot play this game or uses another base, a mix or shares that
            name nobody. RunDirectoryError, CheckpointError: a run, or a step of it, that is not there.
    """

    def __init__(
        self, config: Config, scenario: Scenario, options: OpponentsOptions, players: Mapping[str, str]
    ) -> None:
        self._config, self._scenario, self._options = config, scenario, options
        self.world = LeagueWorld(game_id(config.scenario), scenario.environment, full_options(config.scenario))
        self._scripts: dict[str, AtRandom | Scripted] = {}
        self.players: Mapping[str, str] = {}
        self.restore(pinned(players))

    def restore(self, players: Mapping[str, str]) -> None:
        """See `Pool`; all of them are looked at, and what takes no model is made.

        Raises:
            As the constructor.
        """
        self.players = dict(players)
        for name, source in self.players.items():
            try:
                self._check(source)
            except ConfigError as error:
                raise ConfigError(f"algorithm.opponents, {name}={source}: {error}") from error
        self._mix({})
        plain = [_plain(name) for name in self.players]
        if twice := sorted({name for name in plain if plain.count(name) > 1}):
            raise ConfigError(f"algorithm.opponents has two that would both be called {twice[0]!r}: rename one of them")

    def draw(self, points: Mapping[str, float], random: Random) -> str:
        return draw(self._mix(points), random)

    @asynccontextmanager
    async def open(self, engine: ServingEngine, base: BaseModel) -> AsyncIterator[Mapping[str, Opponent]]:
        """See `Pool`: every run is one more team with adapters `opponent.NAME.ADAPTER`, which nothing changes."""
        found: dict[str, Opponent] = {}
        async with AsyncExitStack() as stack:
            aside = stack.enter_context(ThreadPoolExecutor(1, "opponents"))
            for name, source in self.players.items():
                run = RunSource.parse(source)
                if run is not None:
                    loaded = load_run(run, self.world)
                    team = await stack.enter_async_context(seated(loaded, f"opponent.{_plain(name)}", base, engine))
                    found[name] = _Seated(team)
                elif source.startswith(CHAT):
                    found[name] = _Seated(await stack.enter_async_context(open_chat(source)))
                else:
                    found[name] = await self._script(source, aside)
            yield found

    async def _script(self, source: str, aside: ThreadPoolExecutor) -> Opponent:
        """A search moves aside. The others do so at once, so that nothing depends on how quick they are; `minimax` once
        it has walked through the game."""
        player = self._scripts[source]
        if source.startswith("mcts"):
            return _OpponentRunner(player, aside)
        if source.startswith("minimax"):
            game = self.world.open()
            game.reset(self._scenario.task("train", 0))
            await _OpponentRunner(player, aside).move(game.to_move()[0], game, 0)
        return _Seated(player)

    def _mix(self, points: Mapping[str, float]) -> Distribution:
        shares = self._options.shares
        if not shares:
            return matched(self._options.mix, list(self.players), points)
        for name in shares:
            if name not in {*self.players, SELF}:
                raise ConfigError(
                    f"algorithm.opponents.shares has {name!r}, who is no player. "
                    f"{did_you_mean(name, [*self.players, SELF])}"
                )
        total = fsum(shares.values())
        # in the order of players, so that the order of writing shares changes no draw
        return {name: shares[name] / total for name in [*self.players, SELF] if name in shares}

    def _check(self, source: str) -> None:
        run = RunSource.parse(source)
        if run is not None:
            self._check_run(load_run(run, self.world))
        elif source.startswith(CHAT):
            chat_options(source)
        elif source not in self._scripts:
            self._scripts[source] = scripted(source, self.world)

    def _check_run(self, run: LoadedRun) -> None:
        mine, its = base_parts(self._config.model, self._scenario), base_parts(run.setup.model, run.setup.scenario)
        for key in {**mine, **its}:
            if mine.get(key) != its.get(key):
                raise ConfigError(
                    f"it uses another base than the run that trains, and one base is loaded: {key} is "
                    f"{its.get(key)} there and {mine.get(key)} here. Train with its model.* and scenario.options, or "
                    "take another opponent"
                )
        rank, most = run.setup.model.highest_rank, self._config.model.highest_rank
        if self._config.engine.name.startswith("vllm") and rank > most:
            raise ConfigError(f"its adapters have rank {rank}, and vLLM makes room for {most}: raise model.lora.rank")
        adapter_directories(run.source.path, run.source.step)


def open_pool(config: Config, scenario: Scenario, from_step: int | None = None) -> LeaguePool | None:
    """The opponents of a configuration; None: it names none. A run that goes on has those of its latest checkpoint, or
    of the one of `from_step`, whatever became of the league.

    Raises:
        ConfigError: there is no such league, two of one name, or what `LeaguePool` refuses.
        CheckpointError: the opponents of the latest checkpoint cannot be read.
        TrustError: those of the league or the checkpoint use what the user has not allowed.
    """
    options = config.algorithm.opponents
    if options is None:
        return None
    checkpoints = list_checkpoints(Path(config.run_dir) / "checkpoints")
    checkpoints = [path for path in checkpoints if from_step in (None, step_of(path))]
    if checkpoints and (checkpoints[-1] / FILE).is_file():
        kept = kept_players((checkpoints[-1] / FILE).read_bytes())
        named = {_unpinned(source) for source in options.players.values()}
        unnamed = {name: source for name, source in kept.items() if _unpinned(source) not in named}
        check_sources(unnamed, options.league or config.run_dir)
        return LeaguePool(config, scenario, options, kept)
    players: dict[str, str] = {}
    if options.league is not None:
        if "://" not in options.league and not Path(options.league).is_file():
            raise ConfigError(
                f"algorithm.opponents.league={options.league}: there is no league; mas league enter makes one"
            )
        with closing(LeagueStore.open(options.league)) as store:
            players = {member.name: member.source for member in store.members()}
        check_sources(players, options.league)
    if twice := sorted(players.keys() & options.players.keys()):
        raise ConfigError(f"algorithm.opponents.players has {twice[0]!r}, and a member has that name: choose another")
    return LeaguePool(config, scenario, options, {**players, **options.players})


def _unpinned(source: str) -> str:
    """A run without its step; any other source as it is."""
    run = RunSource.parse(source)
    return source if run is None else str(replace(run, step=None))


def _plain(name: str) -> str:
    """A member's name as part of an adapter's."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


@dataclass(frozen=True, slots=True)
class _Seated:
    """A player that has moved at once, or waits for an engine."""

    player: Player

    async def move(self, seat: str, environment: Environment, seed: int) -> str:
        return await self.player.move(chance_of(environment, seat, seed))


@dataclass(frozen=True, slots=True)
class _OpponentRunner:
    """A player that computes: one move after the other, in a thread of its own, so that nobody else waits for it."""

    player: AtRandom | Scripted
    aside: ThreadPoolExecutor

    async def move(self, seat: str, environment: Environment, seed: int) -> str:
        chance = chance_of(environment.clone(), seat, seed)
        return await asyncio.get_running_loop().run_in_executor(self.aside, self.player.choose, chance)
