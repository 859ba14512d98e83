"""EPO, arXiv 2509.22576: an entropy bonus, and each token's entropy held in a band around what it used to be in that
turn."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class EpoOptions(Options):
    """Each token's entropy is held between `low` and `high` times what it used to be in its team turn; what is outside
    costs `band_weight` x `algorithm.loss.entropy`, less and less over `band_steps`."""

    band_weight: float = 1.0
    low: float = 0.0
    high: float = 2.0
    band_steps: int = 60


algorithm = Algorithm(
    recipe=Recipe(
        title="EPO (entropy-regularised)",
        paper="2509.22576",
        does="An entropy bonus, and each token's entropy is held in a band around what it used to be.",
        differs=("the penalty is a hinge, which has a gradient (the published constant has none), at every step"),
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"entropy": 0.02}},
    options=EpoOptions,
    places={
        "band_weight": "loss.smoothing.weight",
        "low": "loss.smoothing.low",
        "high": "loss.smoothing.high",
        "band_steps": "loss.smoothing.steps",
    },
)
