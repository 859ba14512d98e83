"""OPRL (iStar), arXiv 2509.19199: beside trajectories, what an implicit reward model says of each turn, as z of the
group."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="OPRL (iStar)",
        paper="2509.19199",
        does="An adapter prefers successes to failures; its log-ratio to the policy compares single turns.",
        differs=(
            "the step term is divided by its spread, else it is hundredths of the outcome; a reward model per policy "
            "adapter, which learns before it scores; the loss is the mean over pairs"
        ),
        scenario="plan_path",
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"source": "outcome", "failure": -0.1, "model": {"kind": "implicit", "joins": "step"}},
        "advantage": {
            "baseline": "leave_one_out",
            "scale": "none",
            "step": {"value": "model", "key": "group", "baseline": "leave_one_out", "scale": "std"},
        },
    },
    options=NoOptions,
)
