"""Players that follow rules: at random, by search, or by a solved game."""

from collections.abc import Callable

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.league.match import Chance
from mas.scenarios.against import Policy

OPEN_SPIEL = "open_spiel:"


class Scripted:
    """A policy of a seat as a player; it looks into a copy of the game."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def move(self, asked: Chance) -> str:
        return self._policy(asked.copy(), asked.seat, asked.random)


class AtRandom:
    """Any of the legal actions, each as likely; it passes where they cannot be listed."""

    async def move(self, asked: Chance) -> str:
        return asked.random.choice(asked.legal) if asked.legal else ""


def scripted(source: str, game: str) -> AtRandom | Scripted:
    """A player by its source: `random`, `minimax`, `cfr:ITERATIONS`, `mcts:SIMULATIONS`.

    Args:
        game: its id, as `open_spiel:kuhn_poker`; all but `random` are for OpenSpiel's games.

    Raises:
        ConfigError: no such player, one that cannot play this game, or a number that is none.
    """
    kind, _, number = source.partition(":")
    if kind == "random" and not number:
        return AtRandom()
    makers = _makers()
    if kind not in makers:
        raise ConfigError(f"no player {source!r}. {did_you_mean(kind, ('random', *makers))}")
    if not game.startswith(OPEN_SPIEL):
        raise ConfigError(f"{kind} plays OpenSpiel's games only, {game!r} is none: take random")
    try:
        arguments = (int(number),) if number else ()
    except ValueError as error:
        raise ConfigError(f"{source!r}: write {kind}:NUMBER, as {kind}:200") from error
    return Scripted(makers[kind](game.removeprefix(OPEN_SPIEL), *arguments))


def _makers() -> dict[str, Callable[..., Policy]]:
    from mas.scenarios.bridges.open_spiel_players import cfr, mcts, minimax

    return {"minimax": minimax, "cfr": cfr, "mcts": mcts}
