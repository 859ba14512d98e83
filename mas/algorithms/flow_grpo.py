"""Flow-GRPO of AgentFlow, arXiv 2510.05592: one outcome for every turn of the planner, the only one that is trained."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Flow-GRPO (AgentFlow)",
        paper="2510.05592",
        does=("Planner, executor, verifier and generator over one memory; only the planner learns, by one outcome."),
        differs=(
            "the loop begins with the verifier; outcomes by a rule, not by a judge; trajectories weigh equally in "
            "statistics and loss, as the paper has it and its code does not"
        ),
        scenario="workflow",
    ),
    parts={
        "team": "flow",
        "roles": ["planner"],
        "sampler": {"mode": "parallel"},
        "reward": {"failure": 0.0},
        "loss": {"clip_high": 0.3, "aggregation": "trajectory_mean", "kl": 0.001},
    },
    options=NoOptions,
)
