"""REINFORCE++ with baseline, arXiv 2501.03262: less the group's mean, then whitened over all tokens of the batch."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="REINFORCE++ with baseline",
        paper="2501.03262",
        does="Less the group's mean, then whitened over all tokens of an adapter's batch.",
        differs="no KL in the loss: set loss.kl and loss.kl_estimator=k2 for it",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"scale": "none", "whiten": "tokens"}},
    options=NoOptions,
)
