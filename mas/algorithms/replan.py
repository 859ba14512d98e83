"""Plans as state: both learn from whole episodes, in which the planner is asked again whenever a step of its plan
fails."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Replan (plans as state)",
        does=("A typed plan is kept in the episode's state, carried out step by step, and revised where a step fails."),
        scenario="workflow",
    ),
    parts={"sampler": {"mode": "parallel"}, "reward": {"weights": {"follow": 0.2}, "failure": -0.5}},
    options=NoOptions,
)
