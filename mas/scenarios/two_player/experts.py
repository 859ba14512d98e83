"""Who teaches the tiny base: somebody who knows the moves and no strategy."""

from collections.abc import Iterator, Sequence
from random import Random

from mas.core.environment import Task
from mas.scenarios.bridges.open_spiel_players import minimax
from mas.scenarios.two_player.environment import TwoPlayerEnvironment
from mas.scenarios.two_player.games import GAMES, TwoPlayerGame

TEMPLATE = "{game}{seat}{seen}>"


def demonstrations(
    random: Random, skill: float, games: Sequence[TwoPlayerGame], best: float = 0, *, is_marked: bool = False
) -> Iterator[tuple[str, str]]:
    """(prompt, move) of random games, of several games as many of each. With probability `best` a move of tic-tac-toe
    is one of the best, else any of the legal ones with probability `skill`, else the first: so a base that has learned
    it plays legally, and nearly uniformly at a `skill` near 1."""
    if len(games) == 1:
        yield from _shown(random, skill, games[0], best, is_marked)
    streams = [_shown(Random(random.getrandbits(48)), skill, game, best, is_marked) for game in games]
    while True:
        yield next(random.choice(streams))


def _shown(
    random: Random, skill: float, game: TwoPlayerGame, best: float, is_marked: bool
) -> Iterator[tuple[str, str]]:
    environment = TwoPlayerEnvironment((game,), "letters", tries=1, is_marked=is_marked)
    perfect = minimax(game.name) if best and game is GAMES["tic_tac_toe"] else None
    while True:
        environment.reset(Task(id="shown", seed=random.getrandbits(48)))
        while seats := environment.to_move():
            actions = {}
            for seat in seats:
                legal = environment.legal(seat)
                if perfect is not None and random.random() < best:
                    said = game.letter(perfect(environment, seat, random))
                else:
                    said = random.choice(legal) if random.random() < skill else legal[0]
                yield TEMPLATE.format(**environment.observe(seat).fields), said
                actions[seat] = random.choice(legal)
            environment.step(actions)
