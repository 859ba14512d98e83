"""GRPO over whole episodes of one agent that sees all that the team sees together."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GRPO, a single agent",
        paper="2402.03300",
        does=("K whole episodes of one agent that sees all that the team sees together: the honest baseline."),
    ),
    parts={"team": "solo", "sampler": {"mode": "parallel"}},
    options=NoOptions,
)
