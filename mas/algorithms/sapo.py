"""SAPO, arXiv 2511.20347: a smooth gate instead of a clip."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="SAPO",
        paper="2511.20347",
        does="A smooth gate in place of the clip.",
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"surrogate": "sapo"}},
    options=NoOptions,
)
