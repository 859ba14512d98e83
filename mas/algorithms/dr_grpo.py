"""Dr.GRPO, arXiv 2503.20783: no division by the group's spread, none by a completion's length."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Dr.GRPO",
        paper="2503.20783",
        does="Less the group's mean; sums over tokens are divided by a constant.",
        differs="the constant (loss.max_length) is 8 tokens, for the tiny base",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"scale": "none"},
        "loss": {"aggregation": "seq_mean_token_sum_norm", "max_length": 8},
    },
    options=NoOptions,
)
