"""CORY, arXiv 2410.06101: pioneer and observer are paid together, each learns by a PPO of its own, and they swap
roles."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings


class CoryOptions(CriticSettings):
    """`swap_roles`: each takes the adapter of the one before it, every `swap_every` steps."""

    swap_roles: tuple[str, ...] = ("pioneer", "observer")
    swap_every: int = 5


algorithm = Algorithm(
    recipe=Recipe(
        title="CORY (Coevolving with the Other You)",
        paper="2410.06101",
        does=("Pioneer and observer are paid the sum of both rewards, learn by a PPO of their own, and swap roles."),
        differs="a fixed KL coefficient of the sampled tokens; advantages are whitened instead of scores",
        scenario="refine",
    ),
    parts={
        "team": "pair",
        "sampler": {"mode": "parallel"},
        "reward": {"alpha": 0.0, "shared": True},
        "advantage": {"baseline": "critic"},
        "loss": {"kl": 0.4, "kl_in": "reward", "entropy": 0.0},
    },
    options=CoryOptions,
    places={**CRITIC, "swap_roles": "swap.roles", "swap_every": "swap.every"},
)
