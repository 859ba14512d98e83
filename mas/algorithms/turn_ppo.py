"""Turn-PPO, arXiv 2512.17008: one advantage and one ratio for all tokens of a turn, with a critic."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings


class TurnPpoOptions(CriticSettings):
    """`gamma`: from turn to turn."""

    gamma: float = 0.99


algorithm = Algorithm(
    recipe=Recipe(
        title="Turn-PPO",
        paper="2512.17008",
        does="One advantage and one ratio for all tokens of a turn, with a critic.",
        differs="the form of the turn-level estimate is our reading",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"baseline": "critic"},
        "critic": {"level": "turn"},
        "loss": {"ratio": "turn"},
    },
    options=TurnPpoOptions,
    places=CRITIC,
)
