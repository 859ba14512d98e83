"""PilotRL, arXiv 2508.00344: the executor is paid for following the plan, then the planner for its plans, then both."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import StageSettings
from mas.core.options import Options

STAGES = (
    StageSettings(roles=("executor",), steps=5, weights={"right": 0.0, "follow": 1.0}),
    StageSettings(roles=("planner",), steps=10, weights={"follow": 0.0}),
    StageSettings(roles=("planner", "executor"), steps=100, weights={"follow": 0.0}),
)
"""Who trains when, and what is paid then."""


class PilotrlOptions(Options):
    """`stages`: who trains for how many steps, and what is paid then; empty: all roles, all the time."""

    stages: tuple[StageSettings, ...] = STAGES


algorithm = Algorithm(
    recipe=Recipe(
        title="PilotRL (AdaPlan)",
        paper="2508.00344",
        does=("The executor is paid for following plans, then the planner for the outcome of its plans, then both."),
        differs="lengths of the stages are ours; rules in place of judges; an adapter for each role",
        scenario="workflow",
    ),
    parts={
        "sampler": {"mode": "parallel"},
    },
    options=PilotrlOptions,
    places={"stages": "stages"},
)
