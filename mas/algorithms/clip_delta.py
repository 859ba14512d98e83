"""Clip and Delta, arXiv 2410.15115: a learned reward of turns beside the outcome, bounded so that useless turns do
not pay; PPO."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings


class ClipDeltaOptions(CriticSettings):
    """`eta`: what a turn's learned share must be below to count. `reward_lr`, `reward_epochs`: how the estimator of
    these shares learns."""

    eta: float = 0.5
    reward_lr: float = 3e-4
    reward_epochs: int = 8


algorithm = Algorithm(
    recipe=Recipe(
        title="Clip and Delta",
        paper="2410.15115",
        does=("What a learned model pays single turns is bounded, so that repeating useless ones earns nothing; PPO."),
        differs=("both formulas are our reading of the abstract; the model is SPA-RL's estimator, learned on the way"),
        scenario="plan_path",
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"model": {"kind": "progress", "bound": "both"}},
        "advantage": {"baseline": "critic"},
    },
    options=ClipDeltaOptions,
    places={
        **CRITIC,
        "eta": "reward.model.eta",
        "reward_lr": "reward.model.lr",
        "reward_epochs": "reward.model.epochs",
    },
)
