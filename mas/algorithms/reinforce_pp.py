"""REINFORCE++, arXiv 2501.03262: no groups, returns whitened over all tokens of an adapter's batch, KL in the
reward."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="REINFORCE++",
        paper="2501.03262",
        does="No groups: rewards less the KL, whitened over all tokens of an adapter's batch.",
        differs="each trajectory pays the KL of all its turns at once, with discount 1",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"baseline": "none", "scale": "none", "whiten": "tokens"},
        "loss": {"kl": 0.01, "kl_in": "reward"},
    },
    options=NoOptions,
)
