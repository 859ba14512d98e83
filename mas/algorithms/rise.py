"""RISE, arXiv 2407.18219: attempts follow each other, what was tried in the prompt; at each the best of eight
answers are imitated, and any of them goes on. Our reading: those above the mean of their siblings."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class RiseOptions(Options):
    """`threshold`: what is paid more is imitated; None: more than the mean of its siblings."""

    threshold: float | None = None


algorithm = Algorithm(
    recipe=Recipe(
        title="RISE (Recursive Introspection)",
        paper="2407.18219",
        does=("Attempts see what was tried; at each, answers that are better than their siblings are imitated."),
        differs="weights of 0 and 1 instead of exp(reward / temperature); on-policy in every step",
        scenario="refine",
    ),
    parts={
        "sampler": {
            "mode": "tree",
            "lookahead": "turn",
            "commit_best": 0.0,
            "attempts": {"most": 3, "guide": "none", "stop": "never"},
        },
        "update": "preference",
        "preference": {"value": "reward", "dpo": 0.0},
    },
    options=RiseOptions,
    places={"threshold": "preference.threshold"},
)
