"""ST-PPO, arXiv 2511.20718: Turn-PPO whose updates are smaller the more clipping takes from their gradient."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings


class StPpoOptions(CriticSettings):
    """`gamma`: from turn to turn."""

    gamma: float = 0.99


algorithm = Algorithm(
    recipe=Recipe(
        title="ST-PPO",
        paper="2511.20718",
        does="Turn-PPO, and updates are divided by the norm of the gradient that clipping takes from them.",
        differs="divided by 1 + the norm, as nothing is taken on policy; of each adapter and mini-batch",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"baseline": "critic"},
        "critic": {"level": "turn"},
        "loss": {"ratio": "turn", "bias_correction": True},
    },
    options=StPpoOptions,
    places=CRITIC,
)
