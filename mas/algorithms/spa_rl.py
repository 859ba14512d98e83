"""SPA-RL, arXiv 2505.20732: each turn is paid its estimated share in the outcome, and half a point if it was
grounded; PPO."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

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
        "reward": {"model": {"kind": "progress", "joins": "alone", "grounded": 0.5, "lr": "3e-4", "epochs": 8}},
        "advantage": {"baseline": "critic"},
    },
    options=NoOptions,
)
