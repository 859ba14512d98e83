"""GRPO over whole episodes of the team: every turn of an agent gets its episode's advantage."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GRPO over a team's episodes",
        paper="2402.03300",
        does="K whole episodes of a task; every turn of an agent has its episode's advantage.",
        differs="groups are those of one task and agent, statistics count each trajectory once",
    ),
    parts={"sampler": {"mode": "parallel"}},
    options=NoOptions,
)
