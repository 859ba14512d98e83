"""EAPO of IterResearch, arXiv 2511.07327: earlier turns of long runs earn less, each turn is compared by itself, and
of a step's turns as many are learned from as ranks could share."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class EapoOptions(Options):
    """`multiple_of`: so many rows of an adapter are learned from as the largest multiple of it; None: all."""

    multiple_of: int | None = 8


algorithm = Algorithm(
    recipe=Recipe(
        title="EAPO (IterResearch)",
        paper="2511.07327",
        does=(
            "Earlier turns of long runs earn less; every turn is compared by itself; turns beyond equal shares are "
            "left out."
        ),
        differs=(
            "compared within an agent's turns of a task; the discount is ours; PPO's bounds in place of GSPO's, which"
            " stop turns of one token; shares of 8; of IterResearch's rebuilt workspace only what a world shows in "
            "each turn, no report that a model writes"
        ),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"discount": 0.95},
        "loss": {"ratio": "turn", "clip_high": 0.28, "dual_clip": None},
    },
    options=EapoOptions,
    places={"multiple_of": "loss.multiple_of"},
)
