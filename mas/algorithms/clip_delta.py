"""Clip and Delta, arXiv 2410.15115: a learned reward of turns beside the outcome, bounded so that useless turns do
not pay; PPO."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

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
        "reward": {"model": {"kind": "progress", "bound": "both", "eta": 0.5, "lr": "3e-4", "epochs": 8}},
        "advantage": {"baseline": "critic"},
    },
    options=NoOptions,
)
