"""AEPO, arXiv 2510.14545: a budget shared between whole episodes and branches by entropy; uncertain tokens count
more, and good ones keep their gradient above the upper bound."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="AEPO",
        paper="2510.14545",
        does="Whole episodes and branches at uncertain turns share a budget; uncertain tokens count more.",
        differs=(
            "shared turns are trained once, by the mean of their ends; entropies of drawn tokens, in nats; 8 ends"
        ),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "entropy_tree", "branch": {"by": "chance", "penalty": 0.05, "weight": 0.2, "tokens": 50}},
        "advantage": {"scale": "std", "tree": {"backup": "leaf_mean"}, "entropy_weight": 0.2},
        "loss": {"surrogate": "keep_gradient", "dual_clip": 3.0, "entropy": 0.0},
    },
    options=NoOptions,
)
