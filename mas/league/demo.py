"""The league's demonstration: self-play, then snapshots against each other and against the solved game, and a page."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mas.config.load import load_config
from mas.league.export import export_tournament
from mas.league.games import open_world
from mas.league.match import PlayedGame
from mas.league.players import play_games
from mas.league.standings import Standings, standings
from mas.league.store import LeagueStore
from mas.league.tables import ladder, notes
from mas.league.tournament import Terms
from mas.observe.files import writing
from mas.runs.resolve import configured_scenario
from mas.runs.train import train_in_directory

GAME, NAME = "two_player:kuhn_poker", "self-play"
TRAINING = (
    "scenario=two_player",
    "algorithm=spiral",
    "algorithm.loss.kl=0.5",
    "algorithm.loss.reference.ema=0.95",
    "train.eval_tasks=32",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTerms:
    """How much of it.

    Attributes:
        snapshots: steps of the training that play; 0: before it. The last one ends it; all are multiples of `every`.
        every: steps from one checkpoint to the next.
        games: of each pairing, as many from each seat.
        overrides: of the training, beside `TRAINING`.
        replays: games of each pairing that the page tells.
    """

    snapshots: Sequence[int] = (0, 10, 20, 50, 100)
    every: int = 10
    games: int = 400
    overrides: Sequence[str] = ()
    replays: int = 1


def run_demo(out: Path, console: Console, terms: DemoTerms | None = None) -> Standings:
    """Train, play and write `index.html`, or what is left of it; the table.

    Raises:
        RunDirectoryError: the directory cannot be used, or holds a run of another configuration.
        ConfigError: its league was begun with other terms, or OpenSpiel is not installed.
    """
    terms, began = terms or DemoTerms(), time.perf_counter()
    world = open_world(GAME)  # before anything is trained: it may not be installed
    place = out.resolve()  # in what is kept, so that another spelling of --out goes on, too
    _train(place / "train", console, terms)
    games, sources = _play(place, terms)
    table = standings(list(sources.players), games, order="payoff")
    export_tournament(NAME, sources.as_dict(), table, games, world.open(), out, terms.replays)
    console.print(ladder(table, f"{NAME}: {GAME}, {len(games):,} games"))
    for line in notes(table):
        console.print(line, markup=False, highlight=False)
    console.print(f"{out / 'index.html'}   {time.perf_counter() - began:.0f} s", style="bold", highlight=False)
    return table


def _train(place: Path, console: Console, terms: DemoTerms) -> None:
    last = terms.snapshots[-1]
    config = load_config(
        [
            *TRAINING,
            *terms.overrides,
            f"train.steps={last}",
            f"train.checkpoint_every={terms.every}",
            f"train.keep_checkpoints={last // terms.every + 1}",
        ]
    )
    # Not an override, as a directory's name may hold what overrides would read otherwise.
    config = config.model_copy(update={"run_dir": str(place)})
    train_in_directory(config, configured_scenario(config), console=console)


def _play(out: Path, terms: DemoTerms) -> tuple[list[PlayedGame], Terms]:
    snapshots = {f"step {step}": f"run:{out / 'train'}@{step}" for step in terms.snapshots}
    players = {**snapshots, "random": "random", "solved": "cfr:500"}
    said = Terms(game=GAME, players=players, games=terms.games)
    place = out / "league.db"
    with writing(place, ". Choose another --out."), closing(LeagueStore.open(place)) as store:
        return asyncio.run(play_games(NAME, said, store, open_world(GAME), at_once=256)), said
