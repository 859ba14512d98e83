"""E-GRPO, arXiv 2510.24694: wrong answers earn by the task's entities that were found, up to the group's best."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class EGrpoOptions(Options):
    """`partial`: what a wrong answer earns that came as near as the best of its group. `most_tokens`: of an agent in an
    episode; who says more earns none of that, and is not trained; None: there is no bound."""

    partial: float = 0.3
    most_tokens: int | None = None


algorithm = Algorithm(
    recipe=Recipe(
        title="E-GRPO",
        paper="2510.24694",
        does=("Wrong answers earn by the task's entities that were found, compared with the most of the group."),
        differs=(
            "alpha (0.3) and the longest trajectory (3 tokens, for the tiny base) are ours; entities are sought in "
            "all that the team said"
        ),
        scenario="retrieval",
        needs="entities that it names",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"source": "outcome", "failure": 0.0},
        "loss": {"clip_high": 0.28},
    },
    options=EGrpoOptions,
    places={"partial": "reward.partial.alpha", "most_tokens": "reward.partial.most"},
)
