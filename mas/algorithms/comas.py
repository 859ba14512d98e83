"""CoMAS, arXiv 2510.08529: no label, members pay each other by the scores they give; each one's own batch is
whitened."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="CoMAS",
        paper="2510.08529",
        does="Members pay each other by scores, without a label; each one's batch is whitened.",
        differs="fixed places instead of random ones; each turn pays its own KL at once",
        scenario="discussion",
        options={"pay": "scores"},
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"alpha": 0.0, "of": "turn"},
        "advantage": {"baseline": "none", "scale": "none", "whiten": "turns"},
        "loss": {"kl": 0.01, "kl_in": "reward"},
    },
    options=NoOptions,
)
