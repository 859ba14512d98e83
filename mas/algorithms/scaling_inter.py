"""ScalingInter-RL of AgentGym-RL, arXiv 2509.08755: episodes may take more turns as training goes on."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ScalingInterOptions(Options):
    """`turns`: an episode ends after so many team turns, the first number for `every` steps, then the next, ..."""

    turns: tuple[int, ...] = (2, 4, 8)
    every: int = 10


algorithm = Algorithm(
    recipe=Recipe(
        title="ScalingInter-RL (AgentGym-RL)",
        paper="2509.08755",
        does="Episodes may take more turns as training goes on.",
        differs="horizons of 2, 4 and 8 turns, for small worlds; no KL of 0.001",
        needs="several turns",
    ),
    parts={"sampler": {"mode": "parallel"}},
    options=ScalingInterOptions,
    places={"turns": "sampler.horizon.turns", "every": "sampler.horizon.every"},
)
