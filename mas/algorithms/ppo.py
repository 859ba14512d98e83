"""PPO, arXiv 1707.06347: a critic per adapter, an advantage per token, over whole episodes of the team."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings

algorithm = Algorithm(
    recipe=Recipe(
        title="PPO with a critic",
        paper="1707.06347",
        does="A value function per adapter; every token has an advantage from what followed it.",
        differs="the critic is an adapter of the same base with a linear head",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"baseline": "critic"}},
    options=CriticSettings,
    places=CRITIC,
)
