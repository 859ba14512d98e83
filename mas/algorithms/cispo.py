"""CISPO, arXiv 2506.13585: the ratio is a bounded weight of log pi, so that no token loses its gradient."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="CISPO",
        paper="2506.13585",
        does="The ratio is a bounded weight of log pi: no token loses its gradient.",
        differs="the bound is ScaleRL's, 5 from above alone",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "loss": {"surrogate": "cispo", "clip_low": None, "clip_high": 4.0, "aggregation": "token_mean"},
    },
    options=NoOptions,
)
