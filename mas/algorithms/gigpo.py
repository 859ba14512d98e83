"""GiGPO, arXiv 2505.10978: trajectories of a task, and beside them turns that began in one state, with discounted
returns."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class GigpoOptions(Options):
    """`step_weight`: of the term that compares turns of one state. `discount`: of what was paid later than a turn.
    `step_scale`: that term is divided by its standard deviation, or not."""

    step_weight: float = 1.0
    discount: float = 0.95
    step_scale: Literal["std", "none"] = "std"


algorithm = Algorithm(
    recipe=Recipe(
        title="GiGPO",
        paper="2505.10978",
        does=("Beside episodes, turns that began in the same state are compared by their discounted returns."),
        differs=(
            "a state is what an environment's anchor() says and what was heard; statistics count each trajectory "
            "once; KL by k2, as k3 has no gradient far out"
        ),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"step": {"key": "state"}},
        "loss": {"kl": 0.01, "kl_estimator": "k2"},
    },
    options=GigpoOptions,
    places={
        "step_weight": "advantage.step.weight",
        "discount": "advantage.step.discount",
        "step_scale": "advantage.step.scale",
    },
)
