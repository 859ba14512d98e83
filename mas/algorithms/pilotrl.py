"""PilotRL, arXiv 2508.00344: the executor is paid for following the plan, then the planner for its plans, then both."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

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
        "stages": [
            {"roles": ["executor"], "steps": 5, "weights": {"right": 0.0, "follow": 1.0}},
            {"roles": ["planner"], "steps": 10, "weights": {"follow": 0.0}},
            {"roles": ["planner", "executor"], "steps": 100, "weights": {"follow": 0.0}},
        ],
    },
    options=NoOptions,
)
