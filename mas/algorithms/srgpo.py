"""SRGPO, arXiv 2512.02631: beside trajectories, what single steps were paid, compared in random groups of 16."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class SrgpoOptions(Options):
    """`step_weight`: of the term that compares what single turns were paid. `size`: of the random groups of turns."""

    step_weight: float = 0.5
    size: int = 16


algorithm = Algorithm(
    recipe=Recipe(
        title="SRGPO",
        paper="2512.02631",
        does="Beside episodes, what single steps were paid is compared in random groups of 16.",
        differs="groups are drawn within a role; KL by k2, as k3 has no gradient far out",
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"step": {"value": "reward", "key": "random"}},
        "loss": {"kl": 0.01, "kl_estimator": "k2"},
    },
    options=SrgpoOptions,
    places={"step_weight": "advantage.step.weight", "size": "advantage.step.size"},
)
