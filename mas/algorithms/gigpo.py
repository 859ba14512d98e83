"""GiGPO, arXiv 2505.10978: trajectories of a task, and beside them turns that began in one state, with discounted
returns."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GiGPO",
        paper="2505.10978",
        does=("Beside episodes, turns that began in the same state are compared by their discounted returns."),
        differs=(
            "a state is what an environment's anchor() says and what was heard; statistics count each trajectory "
            "once; KL by k2, as k3 has no gradient far out"
        ),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"step": {"key": "state", "discount": 0.95}},
        "loss": {"kl": 0.01, "kl_estimator": "k2"},
    },
    options=NoOptions,
)
