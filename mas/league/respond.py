"""Training one seat, or all, against a fixed mixture of players, and what the answer got: best responses as far as
training finds them.

What an answer gets against a player is at most what a best response gets: a lower bound of how exploitable it is, also
in games that are too large for the exact one.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console

from mas.algorithms.parts.opponents import OpponentsOptions
from mas.algorithms.registry import SHIPPED, find_algorithm
from mas.config.access import PLAYS
from mas.config.load import load_config
from mas.config.options import Config
from mas.config.servers import RunSource
from mas.config.stored_run import load_run_config
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError
from mas.graph.load import find_team
from mas.league.games import open_world
from mas.league.opponents import LeaguePool, open_pool
from mas.league.players import pinned, play_games
from mas.league.response import ANSWER, TARGET, Response, response_of
from mas.league.store import LeagueStore
from mas.league.tournament import Terms
from mas.league.trained_players import game_id
from mas.runs.resolve import configured_scenario
from mas.runs.train import train_in_directory
from mas.training.trainer import TrainingOutcome

_GROUPS = (
    *("algorithm.advantage.key=group", "algorithm.advantage.baseline=mean", "algorithm.advantage.scale=std"),
    "algorithm.sampler.candidates=8",
)
_ITS_OWN = ("algorithm.roles=[]", *("train.start=null", "train.target=null", "train.token_budget=null"))
"""Whom a run trained, what it began with and what ended it is no affair of its answer's."""
GAMES = "response.db"
"""The file of the answer's run that has the games by which it was measured."""


def train_against(
    config: Config,
    players: Mapping[str, str],
    shares: Mapping[str, float],
    run_dir: Path,
    *,
    seats: Sequence[str] = (),
    start: str | None = None,
    console: Console | None = None,
) -> TrainingOutcome:
    """Train in a directory against a fixed mixture of players, or go on with the run that is there.

    Args:
        config: all the rest: scenario, algorithm, model, steps; its own `algorithm.opponents` is replaced.
        players: name -> source, such as `run:runs/kuhn@20`; names of letters, digits, `_`, `-` and `.`.
        shares: how often each of them is met, divided by their sum; `self` is the policy in training.
        seats: those that are trained; empty: all that the team trains, one after the other.
        start: DIR or DIR@STEP of a run whose adapters training begins with; None: what `config.train.start` says.

    Raises:
        ConfigError: what `mas train` refuses. Otherwise as `train_in_directory`.
    """
    options = OpponentsOptions(players=dict(players), shares=dict(shares), seats=tuple(seats))
    algorithm = config.algorithm.model_copy(update={"opponents": options})
    train = config.train.model_copy(update={"start": start or config.train.start})
    config = config.model_copy(update={"algorithm": algorithm, "train": train, "run_dir": str(run_dir)})
    scenario = configured_scenario(config)
    return train_in_directory(config, scenario, console=console, opponents=open_pool(config, scenario))


def respond(
    source: str,
    config: Config,
    out: Path,
    *,
    games: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
    at_once: int = 64,
    is_drawn: bool = False,
    console: Console | None = None,
) -> Response:
    """Train an answer to one player in a directory, and measure it there in new games.

    Args:
        source: whom to answer; a run without a step is written down with its latest one.
        config: as in `train_against`. games: an even number, each deal from both seats. seed: of their deals.
        is_drawn: the answer draws its moves as in training, instead of saying the likeliest.

    Raises:
        ConfigError: a game that is not of two seats. Otherwise as `train_against` and `run_tournament`.
    """
    (source,) = pinned({TARGET: source}).values()
    team = find_team(configured_scenario(config), config.algorithm.team)
    if len(team.seats) != 2:
        raise ConfigError(f"an answer is measured in games of two seats, team {team.name!r} plays {len(team.plays)}")
    outcome = train_against(config, {TARGET: source}, {TARGET: 1.0}, out, console=console)
    scenario = configured_scenario(config)
    players = {ANSWER: str(RunSource(out, outcome.progress.step or None, is_greedy=not is_drawn)), TARGET: source}
    pool = LeaguePool(config, scenario, OpponentsOptions(players=players), players)
    terms = Terms(game=pool.world.id, players=players, games=games, seed=seed)
    name = f"{source}, {outcome.progress.step} steps, {games} games, seed {seed}{', drawn' if is_drawn else ''}"
    with closing(LeagueStore.open(str(out / GAMES))) as store:
        found = run_blocking(play_games(name, terms, store, pool.world, at_once))
    return response_of(source, tuple(pool.world.open().spec.seats), found, confidence)


def response_config(source: str, game: str, overrides: Sequence[str]) -> Config:
    """The configuration that an answer is trained with: of the run that is answered, or for others of a game.

    Whom the run trained, what it began with and what ended it is left out, for overrides to say.
    Where the run has a running mean per role, the answer compares the candidates of a task instead: they have one deal
    and one opponent.

    Args:
        game: SCENARIO:GAME; empty: that of the run. overrides: over all that.

    Raises:
        ConfigError: neither says what is played, or both do and differ. Otherwise as `load_run_config`.
    """
    run = RunSource.parse(source)
    if run is None:
        if not game:
            raise ConfigError(f"--game is needed, as two_player:kuhn_poker: {source} plays any")
        name, _, kind = open_world(game).id.partition(":")
        chosen = [f"scenario={name}", *([f"scenario.options.game={kind}"] if kind else [])]
        usual = [] if any(word.startswith("algorithm=") for word in overrides) else ["algorithm=spiral", *_GROUPS]
        return load_config([*chosen, *usual, *overrides])
    stored = load_run_config(run.path, uses=())
    more = _GROUPS if stored.algorithm.advantage.baseline == "running" else ()
    code, uses = stored.algorithm.code, (*PLAYS, "start")
    if code is not None and code not in SHIPPED:
        load_run_config(run.path, overrides, uses=uses)  # only for its errors: the code is imported next
    places = find_algorithm(code).places if code is not None else {}
    stages = [f"algorithm.options.{name}=[]" for name, path in places.items() if path == "stages"]
    config = load_run_config(run.path, [*_ITS_OWN, *more, *stages, *overrides], uses=uses)
    if not stages:
        config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"stages": ()})})
    if game not in ("", known := game_id(config.scenario)):
        raise ConfigError(f"--game {game}: run {run.path} plays {known}; leave --game out")
    return config
