"""S-PPO, arXiv 2511.20718: PPO of tokens whose updates are smaller the more clipping takes from their gradient."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings

algorithm = Algorithm(
    recipe=Recipe(
        title="S-PPO",
        paper="2511.20718",
        does=("PPO over tokens, and updates are divided by the norm of the gradient that clipping takes from them."),
        differs="divided by 1 + the norm, as nothing is taken on policy; of each adapter and mini-batch",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"baseline": "critic"}, "loss": {"bias_correction": True}},
    options=CriticSettings,
    places=CRITIC,
)
