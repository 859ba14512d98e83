"""OPO, arXiv 2505.23585: the baseline is the reward's mean by tokens; on policy, without bounds, entropy or KL."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="OPO",
        paper="2505.23585",
        does="The baseline is the group's mean reward weighted by tokens; no bounds, entropy or KL.",
        differs="on policy is learner.minibatches=1, which scenarios set otherwise",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"baseline": "length_weighted", "scale": "none"},
        "loss": {"surrogate": "reinforce", "entropy": 0.0},
    },
    options=NoOptions,
)
