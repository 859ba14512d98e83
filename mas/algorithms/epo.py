"""EPO, arXiv 2509.22576: an entropy bonus, and each token's entropy held in a band around what it used to be in that
turn."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="EPO (entropy-regularised)",
        paper="2509.22576",
        does="An entropy bonus, and each token's entropy is held in a band around what it used to be.",
        differs=("the penalty is a hinge, which has a gradient (the published constant has none), at every step"),
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"entropy": 0.02, "smoothing": {"high": 2.0, "steps": 60}}},
    options=NoOptions,
)
