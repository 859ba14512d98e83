"""Players by their sources: `random`, `solver`, `cfr:500`, `run:DIR@STEP`, `greedy:DIR`, `openai:MODEL@URL`.

`open_players` opens them, `play_games` plays a tournament of the command line and shows how far it is. Here are
those that follow rules (at random, by search, by a solved game) and those whose model a server elsewhere has; teams of
runs are in `mas.league.trained_players`, which loads torch.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from mas.config.servers import CHAT, RUNS, RunSource, chat_options
from mas.core.engine import Engine, Request, Sampling
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.league.games import SEVERAL, LeagueWorld, translated
from mas.league.match import Chance, PlayedGame, Player
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament
from mas.observe.progress import counting
from mas.scenarios.game import game_below
from mas.scenarios.game_rules import LONGEST_ACTION
from mas.scenarios.wrappers import Policy

OPEN_SPIEL, SOLVER = "open_spiel:", "solver"
KINDS = ("random", "solver", "minimax", "cfr", "mcts")
_MOVE = re.compile(r"^[\s*`>]*MOVE[\s:*`]+(?P<move>.+?)[\s*`]*$", re.MULTILINE)
_TOLD = (
    "You play a game against somebody, in the seat that you are told. You see what it knows and its legal moves. "
    "Think as long as you like; nobody but you reads it. End with one line: MOVE and one of the legal moves, as in: "
    "MOVE {example}"
)
_TOKENS = 1024


def pinned(sources: Mapping[str, str]) -> dict[str, str]:
    """Runs with the step of their latest checkpoint, so that a tournament that goes on has the players it began with.

    Raises:
        ConfigError: see `RunSource.parse`.
    """
    return {name: _pinned(source) for name, source in sources.items()}


def _pinned(source: str) -> str:
    run = RunSource.parse(source)
    if run is None or run.step is not None:
        return source
    from mas.training.checkpoint import checkpoint_steps

    steps = checkpoint_steps(run.path / "checkpoints")
    return f"{source}@{steps[-1]}" if steps else source


def candidate_of(text: str) -> tuple[str, str]:
    """Source and usual name of who is asked to enter: `runs/kuhn@20` is `run:runs/kuhn@20`, called `kuhn-20`.

    A text that is a directory, or begins with no known kind, is a run.

    Raises:
        ConfigError: see `RunSource.parse`.
    """
    kind = text.partition(":")[0]
    source = text if kind in (*RUNS, *KINDS, "openai") and not Path(text).is_dir() else f"run:{text}"
    run = RunSource.parse(_pinned(source))
    if run is None:
        return source, source.replace("/", "_").replace(",", "_")
    return source, run.path.absolute().name + ("" if run.step is None else f"-{run.step}")


@asynccontextmanager
async def open_players(
    sources: Mapping[str, str], world: LeagueWorld, note: Callable[[str], None]
) -> AsyncIterator[dict[str, Player]]:
    """Players by name, from their sources.

    Args:
        note: told what takes long.

    Raises:
        ConfigError: no such player, or one that cannot play this game. Otherwise as `open_runs` and `open_chat`.
    """
    players: dict[str, Player] = {}
    runs: dict[str, RunSource] = {}
    async with AsyncExitStack() as stack:
        for name, source in sources.items():
            run = RunSource.parse(source)
            if run is not None:
                runs[name] = run
            elif source.startswith(CHAT):
                players[name] = await stack.enter_async_context(open_chat(source))
            else:
                players[name] = scripted(source, world)
        if runs:
            from mas.league.trained_players import open_runs

            players |= await stack.enter_async_context(open_runs(runs, world, note))
        yield players


async def play_games(name: str, terms: Terms, store: LeagueStore, world: LeagueWorld, at_once: int) -> list[PlayedGame]:
    """Play what is left of a tournament; all its games.

    Raises:
        As `open_players` and `run_tournament`.
    """
    note = partial(Console(stderr=True).print, style="dim", highlight=False, markup=False)
    async with open_players(terms.players, world, note) as players:
        with counting() as counted:
            progress = partial(counted, "games")
            return await run_tournament(name, terms, store, world.open, players, at_once=at_once, progress=progress)


class Scripted:
    """A policy of a seat of OpenSpiel's as a player; it looks into a copy of the game, below the words of a world."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def move(self, asked: Chance) -> str:
        return self.choose(asked)

    def choose(self, asked: Chance) -> str:
        """The same without a loop; a search takes as long as it takes."""
        copy = asked.copy()
        game = game_below(copy)
        own = None if game is None else game.legal(asked.seat)
        return translated(self._policy(copy, asked.seat, asked.random), own, asked.legal)


class AtRandom:
    """Any of the legal actions, each as likely; of games whose actions can be listed."""

    async def move(self, asked: Chance) -> str:
        return self.choose(asked)

    def choose(self, asked: Chance) -> str:
        """The same without a loop."""
        return asked.random.choice(asked.legal) if asked.legal else ""


def scripted(source: str, world: LeagueWorld) -> AtRandom | Scripted:
    """A player by its source: `random`, `solver`, `minimax`, `cfr:ITERATIONS`, `mcts:SIMULATIONS`.

    Args:
        world: all but `random` are for OpenSpiel's games, and for scenarios that lie over one.

    Raises:
        ConfigError: no such player, one that cannot play this game, or a number that is none.
    """
    kind, _, number = source.partition(":")
    if kind == "random" and not number:
        _check_listed(world)
        return AtRandom()
    from mas.scenarios.bridges.open_spiel_players import SOLVED, cfr, mcts, minimax, solver

    makers: dict[str, Callable[..., Policy]] = {SOLVER: solver, "minimax": minimax, "cfr": cfr, "mcts": mcts}
    if kind not in makers:
        raise ConfigError(f"no player {source!r}. {did_you_mean(kind, (*KINDS, 'run', 'greedy', 'openai'))}")
    opened = world.open()
    if SEVERAL in opened.spec.name:
        raise ConfigError(f"{kind} plays one game, and {world.id!r} are several: name one of them, or take random")
    game = game_below(opened)
    if game is None or not game.rules.name.startswith(OPEN_SPIEL):
        solved = f" (solver plays {', '.join(SOLVED)})" if kind == SOLVER else ""
        raise ConfigError(f"{kind} plays OpenSpiel's games only{solved}, {world.id!r} is none: take random")
    if kind == SOLVER and number:
        raise ConfigError(f"{source!r}: write {SOLVER}, which knows by itself how long it computes")
    try:
        arguments = (int(number),) if number else ()
    except ValueError as error:
        raise ConfigError(f"{source!r}: write {kind}:NUMBER, as {kind}:200") from error
    return Scripted(makers[kind](game.rules.name.removeprefix(OPEN_SPIEL), *arguments))


def has_solver(world: LeagueWorld) -> bool:
    """Whether `solver` plays a world."""
    from mas.scenarios.bridges.open_spiel_players import SOLVED

    opened = world.open()
    game = None if SEVERAL in opened.spec.name else game_below(opened)
    return game is not None and game.rules.name in {f"{OPEN_SPIEL}{name}" for name in SOLVED}


def _check_listed(world: LeagueWorld) -> None:
    """Refuse games in which nobody could play at random."""
    game = world.open()
    game.reset(Task(id="listed", seed=0))
    for seat in game.to_move():
        if game.legal(seat) is None:
            raise ConfigError(
                f"random cannot play {world.id!r}: the game does not list its legal actions, so that every move would "
                "be a pass and every game forfeited. Take models: openai:MODEL@URL"
            )


@dataclass(frozen=True, slots=True)
class ChatPlayer:
    """A model that is shown its view as lines of `field: text` and ends its answer with `MOVE action`.

    An answer without such a line is taken as the move itself, so that the game's rule for illegal ones holds. The
    server is sent the seed of the move; whether it heeds it is up to the server.
    """

    engine: Engine
    temperature: float = 1.0

    async def move(self, asked: Chance) -> str:
        fields = {name: text for name, text in asked.observation.fields.items() if text}
        if asked.legal is not None:
            fields["legal"] = "\n".join(asked.legal)
        told = _TOLD.format(example=asked.legal[0] if asked.legal else "...")
        shown = "\n".join(f"{name}: {text}" for name, text in fields.items())
        tokenizer = self.engine.tokenizer
        request = Request(
            prompt_ids=tokenizer.chat(told, shown),
            sampling=Sampling(temperature=self.temperature, max_tokens=_TOKENS, stop=self.engine.stop_ids),
            seeds=(asked.random.getrandbits(63),),
        )
        (said,) = await self.engine.generate(request)
        ids = said.token_ids[:-1] if said.finish == "stop" else said.token_ids
        return move_in(tokenizer.decode(ids))


def move_in(answer: str) -> str:
    """The move of an answer: behind the last MOVE that begins a line, else all of it."""
    found = _MOVE.findall(answer)
    return (found[-1] if found else answer.strip())[:LONGEST_ACTION]


@asynccontextmanager
async def open_chat(source: str) -> AsyncIterator[ChatPlayer]:
    """The player of `openai:MODEL@URL` or `openai:MODEL@URL#VARIABLE`, the environment variable that holds the key.

    Raises:
        ConfigError: it reads otherwise, the key is not set, or the server does not have the model.
        EngineError: there is no such server.
    """
    from mas.serving.remote_chat import ChatEngine

    engine = await ChatEngine.start(chat_options(source), source)
    try:
        yield ChatPlayer(engine)
    finally:
        await engine.close()
