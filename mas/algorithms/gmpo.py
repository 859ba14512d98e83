"""GMPO, arXiv 2507.20673: the geometric mean of a turn's bounded ratios."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GMPO",
        paper="2507.20673",
        does="The geometric mean of the bounded ratios of a turn's tokens.",
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"surrogate": "gmpo", "clip_low": 0.4, "clip_high": 0.4}},
    options=NoOptions,
)
