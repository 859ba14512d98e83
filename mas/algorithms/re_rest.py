"""Re-ReST, arXiv 2406.01495: a reflector repairs what failed; what the environment accepts is imitated, first
answers by whoever gave them, repairs by the reflector and, as answers to the first prompt, by whoever failed."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ReRestOptions(Options):
    """`threshold`: what is paid more is imitated; None: more than the mean of its siblings. `repairs`: also as answers
    to the prompt of the first attempt."""

    threshold: float | None = 0.5
    repairs: bool = True


algorithm = Algorithm(
    recipe=Recipe(
        title="Re-ReST",
        paper="2406.01495",
        does="A reflector repairs what failed; what the environment accepts is imitated, repairs by both.",
        differs=(
            "on-policy in every step instead of one offline round; the reflector imitates its own repairs as well"
        ),
        scenario="refine",
        needs="one team turn",
    ),
    parts={
        "sampler": {"mode": "tree", "lookahead": "turn", "commit_best": 0.0, "attempts": {"guide": "repair"}},
        "update": "preference",
        "preference": {"value": "reward", "dpo": 0.0},
    },
    options=ReRestOptions,
    places={"threshold": "preference.threshold", "repairs": "preference.repairs"},
)
