"""Stratified GRPO, arXiv 2510.06214: trajectories are compared with those of episodes with as many searches."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Stratified GRPO",
        paper="2510.06214",
        does=("Trajectories are compared with those of episodes with as many searches, blended with all of the group."),
        differs="the share of the blend (0.8) is ours, the paper's was not seen; a search is any member's",
        scenario="retrieval",
        needs="several turns and tools",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"strata": {"by": "calls", "blend": 0.8}}},
    options=NoOptions,
)
