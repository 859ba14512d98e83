"""Who teaches the tiny base: somebody who knows the moves and no strategy."""

from collections.abc import Iterator
from random import Random

from mas.core.environment import Task
from mas.scenarios.bridges.open_spiel_players import minimax
from mas.scenarios.two_player.environment import TwoPlayerEnvironment
from mas.scenarios.two_player.games import Game

TEMPLATE = "{seat}{seen}>"


def demonstrations(random: Random, skill: float, game: Game, best: float = 0) -> Iterator[tuple[str, str]]:
    """(prompt, move) of random games. With probability `best` a move is one of the best, else any of the legal ones
    with probability `skill`, else the first: so a base that has learned it plays legally, and nearly uniformly at a
    `skill` near 1."""
    environment = TwoPlayerEnvironment(game, "letters", tries=1)
    perfect = minimax(game.name) if best else None
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
