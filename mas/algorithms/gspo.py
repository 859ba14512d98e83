"""GSPO, arXiv 2507.18071: one ratio for all tokens of a turn, with narrow bounds."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="GSPO",
        paper="2507.18071",
        does="One ratio for all tokens of a turn, its geometric mean, between narrow bounds.",
        differs="a sequence is one turn; loss.ratio=sequence takes all turns of an agent's episode",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "loss": {"ratio": "turn", "clip_low": 0.0003, "clip_high": 0.0004, "dual_clip": None},
    },
    options=NoOptions,
)
