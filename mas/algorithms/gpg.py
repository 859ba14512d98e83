"""GPG, arXiv 2504.02546: less the group's mean, by the share of rewards that are not 0, into the plain policy
gradient."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GPG (Group Policy Gradient)",
        paper="2504.02546",
        does=("The plain policy gradient of what a reward is above its group's mean, by the share that is not 0."),
        differs="tasks without a difference are not drawn again, as algorithm=dapo does",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"scale": "nonzero"},
        "loss": {"surrogate": "reinforce", "entropy": 0.0},
    },
    options=NoOptions,
)
