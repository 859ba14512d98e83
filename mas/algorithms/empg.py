"""EMPG, arXiv 2509.09265: turns of low entropy count more, and those that lead to one get a bonus."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class EmpgOptions(Options):
    """Advantages x exp(-`scale` H) / mean, + `clarity` x exp(-`clarity_scale` H of the next turn), less the mean. H:
    the turn's mean entropy a token, from 0 to 1 over a batch."""

    scale: float = 1.0
    clarity: float = 0.05
    clarity_scale: float = 1.0


algorithm = Algorithm(
    recipe=Recipe(
        title="EMPG",
        paper="2509.09265",
        does="Advantages of confident turns are larger, and turns that lead to one get a bonus.",
        differs=("its constants are ours, the exponential form of the bonus is our reading; entropies within a role"),
        needs="several turns",
    ),
    parts={"sampler": {"mode": "parallel"}},
    options=EmpgOptions,
    places={
        "scale": "advantage.uncertainty.scale",
        "clarity": "advantage.uncertainty.clarity",
        "clarity_scale": "advantage.uncertainty.clarity_scale",
    },
)
