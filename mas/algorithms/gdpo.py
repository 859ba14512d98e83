"""GDPO, arXiv 2601.05242: every term of the reward is compared by itself."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GDPO",
        paper="2601.05242",
        does="Every term of the reward is normalised by itself, then their weighted sum over the batch.",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"components": True, "baseline": "mean", "scale": "std"}},
    options=NoOptions,
)
