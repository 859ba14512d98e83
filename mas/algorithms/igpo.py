"""IGPO, arXiv 2510.14967: a turn earns what it added to the probability of the right answer, beside the outcome."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class IgpoOptions(Options):
    """`gain`: of a turn, in the `probability` of the right answer (the geometric mean over its tokens), or in their
    mean log-probability (`logprob`). `discount`: of what comes later, per wave of turns."""

    gain: Literal["probability", "logprob"] = "probability"
    discount: float = 1.0


algorithm = Algorithm(
    recipe=Recipe(
        title="IGPO",
        paper="2510.14967",
        does=("A turn earns what it added to the probability of the right answer; the last ones earn the outcome."),
        differs=(
            "the outcome is success, not F1; in a team agents that speak at once are one turn, and who answers is "
            "asked how likely the answer is; gains are divided by their spread, as in its second version"
        ),
        scenario="retrieval",
        needs="a right answer that it says",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"source": "outcome"},
        "advantage": {"baseline": "mean", "scale": "std"},
        "loss": {"kl": 0.001},
    },
    options=IgpoOptions,
    places={"gain": "reward.gain.of", "discount": "reward.gain.discount"},
)
