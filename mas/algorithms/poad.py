"""POAD, arXiv 2405.15821: PPO whose discount counts the turns of an agent and not their tokens."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings


class PoadOptions(CriticSettings):
    """`gamma`: from turn to turn."""

    gamma: float = 0.95


algorithm = Algorithm(
    recipe=Recipe(
        title="POAD",
        paper="2405.15821",
        does="PPO whose discount counts an agent's turns and not its tokens.",
        differs="the critic is an adapter of the same base with a linear head",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"baseline": "critic"},
        "critic": {"level": "bad"},
        "loss": {"entropy": 0.01},
    },
    options=PoadOptions,
    places=CRITIC,
)
