"""AT-GRPO, arXiv 2510.11062: candidates per agent and turn, compared inside their own group; the best goes on."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="AT-GRPO",
        paper="2510.11062",
        does="K candidates per agent and turn from one state, compared with each other; the best goes on.",
        differs=("groups also hold the state; what a candidate is worth is played out to the end of the team turn"),
    ),
    parts={"sampler": {"commit_best": 1.0}},
    options=NoOptions,
)
