"""OPRL (iStar), arXiv 2509.19199: beside trajectories, what an implicit reward model says of each turn, as z of the
group."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class OprlOptions(Options):
    """`step_weight`: of what the reward model says of a turn, beside the outcome. `step_scale`: that is divided by its
    standard deviation, or not. `beta`: the reward model's; `pooling`: an episode has the sum of its turns' rewards, or
    their mean. `reward_lr`, `reward_epochs`: how the reward model learns."""

    step_weight: float = 1.0
    step_scale: Literal["std", "none"] = "std"
    beta: float = 0.05
    pooling: Literal["sum", "mean"] = "sum"
    reward_lr: float = 3e-3
    reward_epochs: int = 4


algorithm = Algorithm(
    recipe=Recipe(
        title="OPRL (iStar)",
        paper="2509.19199",
        does="An adapter prefers successes to failures; its log-ratio to the policy compares single turns.",
        differs=(
            "the step term is divided by its spread, else it is hundredths of the outcome; a reward model per policy "
            "adapter, which learns before it scores; the loss is the mean over pairs"
        ),
        scenario="plan_path",
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"source": "outcome", "failure": -0.1, "model": {"kind": "implicit", "joins": "step"}},
        "advantage": {
            "baseline": "leave_one_out",
            "scale": "none",
            "step": {"value": "model", "key": "group", "baseline": "leave_one_out"},
        },
    },
    options=OprlOptions,
    places={
        "step_weight": "advantage.step.weight",
        "step_scale": "advantage.step.scale",
        "beta": "reward.model.beta",
        "pooling": "reward.model.pooling",
        "reward_lr": "reward.model.lr",
        "reward_epochs": "reward.model.epochs",
    },
)
