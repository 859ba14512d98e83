"""Players that were trained: teams of runs, all adapters of one base side by side on one engine.

Imported when somebody asks for one, as it loads models.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mas.config.access import CONFIG_FILE, PLAYS, TEAM_FILE
from mas.config.load import leaves
from mas.config.options import ModelOptions, ScenarioOptions
from mas.config.servers import RunSource
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError
from mas.core.messages import Payload
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed, digest
from mas.core.team import TeamSpec
from mas.league.games import GAME, SEVERAL, LeagueWorld, full_options, translated
from mas.league.match import Chance
from mas.runs.resolve import configured_scenario, resolve
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, look, play_turn, seat_actions, silent_agents
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.serving.adapter_files import digest_of
from mas.serving.model import BaseModel
from mas.serving.store import ServingEngine
from mas.training.base import Note, open_base
from mas.training.engines import start_engine
from mas.training.saved import adapter_directories, at_tinker, initial_adapters, saved_adapters, start_directories
from mas.training.session import open_team
from mas.training.setup import Setup


@dataclass(frozen=True, slots=True)
class TeamPlayer:
    """A team in any seat of a world: the members of that seat take a team turn of their own for each move.

    Args:
        scenario: the world as the team sees it, in its own style.
        temperature: None: each role's own, as it was trained; 0: greedy.
    """

    runtime: TeamRuntime
    scenario: Scenario
    temperature: float | None = None

    async def move(self, asked: Chance) -> str:
        own, seat, plan = self.scenario.environment(), asked.seat, self.runtime.plan
        own.restore(asked.copy().snapshot())
        observations = look(plan, own)
        drawn = asked.random.getrandbits(63)
        episode = f"league-{drawn:x}"

        async def decide(point: DecisionPoint) -> Payload:
            seed = derive_seed("league", drawn, point.agent, point.flow.visits(point.agent))
            (said,) = await self.runtime.ask(point, (seed,), episode=episode, temperature=self.temperature)
            return said.payload

        begin = Flow.start(plan, (seat,), silent_agents(observations))
        flow = await play_turn(begin, own, observations, 0, decide, in_step=True)
        return translated(seat_actions(flow, (seat,))[seat], own.legal(seat), asked.legal)


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run that plays a world: `setup` as it was trained, `own` the world in its style."""

    source: RunSource
    setup: Setup
    own: Scenario

    @property
    def base(self) -> str:
        """Equal for runs that can share a base and its engine."""
        kept = (f"{name}={value}" for name, value in base_parts(self.setup.model, self.setup.scenario).items())
        return digest(*kept, self.setup.engine.model_dump_json())


@asynccontextmanager
async def open_runs(
    wanted: Mapping[str, RunSource], world: LeagueWorld, note: Note
) -> AsyncIterator[dict[str, TeamPlayer]]:
    """Players by name. Each base is loaded once, with one engine, however many runs and steps use it: what a
    player adds are its adapters.

    Raises:
        RunDirectoryError: no such run, or no checkpoint of that step. CheckpointError: a corrupt one.
        ConfigError: the run plays another game, or not every seat of it. ModelError: a base cannot be loaded.
    """
    runs = {name: load_run(source, world) for name, source in wanted.items()}
    bases: dict[str, tuple[BaseModel, ServingEngine]] = {}
    players: dict[str, TeamPlayer] = {}
    async with AsyncExitStack() as stack:
        for number, (name, run) in enumerate(runs.items()):
            if run.base not in bases:
                # The one with the highest rank: engines that make room for adapters beforehand need to know.
                rank = max(other.setup.model.highest_rank for other in runs.values() if other.base == run.base)
                bases[run.base] = await _open_base(run, rank, note)
                stack.push_async_callback(bases[run.base][1].close)
            players[name] = await stack.enter_async_context(seated(run, f"{number}", *bases[run.base]))
        yield players


@asynccontextmanager
async def seated(run: LoadedRun, prefix: str, base: BaseModel, engine: ServingEngine) -> AsyncIterator[TeamPlayer]:
    """A run's team with its adapters on an engine, where their names begin with the prefix and nothing changes them.

    Raises:
        CheckpointError, RunDirectoryError: see `saved_adapters`. EngineError: one cannot be published.
    """
    uses = {role: f"{prefix}.{adapter}" for role, adapter in run.setup.sampling_adapters.items() if adapter is not None}
    source = run.source
    found = initial_adapters(run.setup, base) if source.step == 0 else saved_adapters(source.path, base, source.step)
    adapters = {f"{prefix}.{adapter}": weights for adapter, weights in found.items()}
    async with open_team(run.setup, base, adapters, uses, engine=engine) as session:
        for name in adapters:
            engine.store.freeze(name)
        yield TeamPlayer(session.runtime, run.own, 0.0 if source.is_greedy else None)


def run_digest(source: RunSource) -> str:
    """SHA-256 of the files of a run that make its player: configuration, team and adapters, of `train.start` if it
    plays as its training began.

    Raises:
        RunDirectoryError, CheckpointError: see `saved_adapters`. ConfigError, TrustError: see `load_run_config`.
    """
    run = source.path
    if source.step == 0:
        start = load_run_config(run, uses=(*PLAYS, "start")).train.start
        folders = [] if start is None else start_directories(start)
    else:
        folders = adapter_directories(run, source.step)
    files = {f"{folder.name}/{file.name}": file for folder in folders for file in folder.iterdir()}
    files |= {name: run / name for name in (CONFIG_FILE, TEAM_FILE) if (run / name).is_file()}
    return digest_of({name: path.read_bytes() for name, path in files.items()})


def base_parts(model: ModelOptions, scenario: Scenario) -> dict[str, str]:
    """All that a base depends on, by key: runs that have it in common can use one."""
    kept = {f"model.{name}": str(value) for name, value in leaves(model.model_dump(exclude={"lora", "adapters"}))}
    kept["model.lora.targets"] = " ".join(sorted(model.targets))
    return kept | ({"scenario of the tiny base": scenario.fingerprint()} if model.path == "tiny" else {})


def game_of(path: Path) -> str:
    """The id of the game that a run was trained on.

    Raises:
        RunDirectoryError: no such run. ConfigError: its scenario cannot be built.
    """
    return game_id(load_run_config(path, uses=["file", "code"]).scenario)


def game_id(scenario: ScenarioOptions) -> str:
    """The id of the game that a scenario plays.

    Raises:
        ConfigError: it cannot be built.
    """
    full = full_options(scenario)
    game = full.options.get(GAME)
    return full.name if game is None else f"{full.name}:{game}"


async def _open_base(run: LoadedRun, rank: int, note: Note) -> tuple[BaseModel, ServingEngine]:
    model = run.setup.model
    setup = replace(run.setup, model=model.model_copy(update={"lora": model.lora.model_copy(update={"rank": rank})}))
    base = open_base(setup, note)
    return base, await start_engine(setup.engine, base)


def load_run(source: RunSource, world: LeagueWorld) -> LoadedRun:
    """A run as a player of a world. Needs no model.

    Raises:
        RunDirectoryError: no such run, or its adapters are at a Tinker service. ConfigError: it plays another game, or
            not every seat of it, or one of its roles has a `history`.
    """
    uses = (*PLAYS, "start") if source.step == 0 else PLAYS
    config = load_run_config(source.path, uses=uses)
    scenario = configured_scenario(config)
    spec, wanted = scenario.environment().spec, world.open().spec
    is_played = set(wanted.name.split(SEVERAL)) <= set(spec.name.split(SEVERAL))
    if world.scenario is None or config.scenario.name != world.scenario.name or not is_played:
        raise ConfigError(f"run {source.path} plays {game_of(source.path)}, not {world.id}: take a run of that game")
    if config.algorithm.is_training_free:
        raise ConfigError(f"run {source.path} has learned as text, without adapters: it cannot be a player yet")
    if config.engine.name == "tinker":
        raise at_tinker(source.path)
    setup = resolve(config, scenario)
    _check_seats(source, setup.team, wanted.seats)
    _check_history(source, setup.team)
    own = build_scenario(world.seen_as(full_options(config.scenario)))
    return LoadedRun(source, setup, own)


def _check_history(source: RunSource, team: TeamSpec) -> None:
    for role, spec in team.roles.items():
        if spec.history:
            raise ConfigError(
                f"role {role!r} of run {source.path} has history: {spec.history}, and a player is asked about one move "
                "at a time, without what it said before: train it without a history"
            )


def _check_seats(source: RunSource, team: TeamSpec, seats: Sequence[str]) -> None:
    missing = [seat for seat in seats if seat not in team.plays]
    if missing:
        raise ConfigError(
            f"the team of run {source.path} does not play {', '.join(missing)}: a player takes any seat; train "
            "one with `seats` for all of them"
        )
