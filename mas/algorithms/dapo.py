"""DAPO, arXiv 2503.14476: a higher upper bound, tokens weigh equally, tasks that teach nothing are replaced."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="DAPO",
        paper="2503.14476",
        does=("A higher upper bound, all tokens weigh the same, tasks without anything to teach are replaced."),
        differs="tasks are replaced at most twice a step; the over-long penalty is off: reward.length has it",
    ),
    parts={
        "sampler": {"mode": "parallel", "refill": 2},
        "loss": {"clip_high": 0.28, "aggregation": "token_mean", "entropy": 0.0},
    },
    options=NoOptions,
)
