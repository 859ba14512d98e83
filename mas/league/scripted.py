"""Players that follow rules: at random, by search, or by a solved game."""

from collections.abc import Callable

from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.league.games import SEVERAL, LeagueWorld, translated
from mas.league.match import Chance
from mas.scenarios.game import game_below
from mas.scenarios.wrappers import Policy

OPEN_SPIEL, SOLVER = "open_spiel:", "solver"
KINDS = ("random", "solver", "minimax", "cfr", "mcts")


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
    from mas.scenarios.bridges.open_spiel_players import SOLVED

    makers = _makers()
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


def _check_listed(world: LeagueWorld) -> None:
    """Refuse games in which nobody could play at random.

    Raises:
        ConfigError: the seats that begin cannot list their legal actions.
    """
    game = world.open()
    game.reset(Task(id="listed", seed=0))
    for seat in game.to_move():
        if game.legal(seat) is None:
            raise ConfigError(
                f"random cannot play {world.id!r}: the game does not list its legal actions, so that every move would "
                "be a pass and every game forfeited. Take models: openai:MODEL@URL"
            )


def _makers() -> dict[str, Callable[..., Policy]]:
    from mas.scenarios.bridges.open_spiel_players import cfr, mcts, minimax, solver

    return {SOLVER: solver, "minimax": minimax, "cfr": cfr, "mcts": mcts}
