"""SAPO, arXiv 2511.20347: a smooth gate instead of a clip."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class SapoOptions(Options):
    """`tau_pos`, `tau_neg`: how narrow the gate is for good and for bad tokens."""

    tau_pos: float = 1.0
    tau_neg: float = 1.05


algorithm = Algorithm(
    recipe=Recipe(
        title="SAPO",
        paper="2511.20347",
        does="A smooth gate in place of the clip.",
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"surrogate": "sapo"}},
    options=SapoOptions,
    places={"tau_pos": "loss.tau_pos", "tau_neg": "loss.tau_neg"},
)
