"""SPA-RL, arXiv 2505.20732: each turn is paid its estimated share in the outcome, and half a point if it was
grounded; PPO."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings


class SpaRlOptions(CriticSettings):
    """`grounded`: what a turn earns whose output parsed and whose action was legal. `reward_lr`, `reward_epochs`: how
    the estimator of shares learns."""

    grounded: float = 0.5
    reward_lr: float = 3e-4
    reward_epochs: int = 8


algorithm = Algorithm(
    recipe=Recipe(
        title="SPA-RL",
        paper="2505.20732",
        does=(
            "An estimator learns each turn's share in the outcome; turns are paid that, and a bonus if grounded; PPO."
        ),
        differs=(
            "the estimator learns in every step, not once before; outcome is success; no KL; the last turn counts"
        ),
        scenario="plan_path",
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"model": {"kind": "progress", "joins": "alone"}},
        "advantage": {"baseline": "critic"},
    },
    options=SpaRlOptions,
    places={
        **CRITIC,
        "grounded": "reward.model.grounded",
        "reward_lr": "reward.model.lr",
        "reward_epochs": "reward.model.epochs",
    },
)
