"""WaltzRL, arXiv 2510.08240: the feedback agent is trained first, then both, without pay for labels alone; each
one's rewards whitened over its batch."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="WaltzRL",
        paper="2510.08240",
        does="The feedback agent alone, then both, each paid what its feedback improved.",
        differs="weights of label and format are ours; every answer is trained; no KL",
        scenario="safe_reply",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {"alpha": 0.0, "of": "turn"},
        "advantage": {"baseline": "none", "scale": "none", "whiten": "turns"},
        "stages": [
            {"roles": ["feedback"], "steps": 5},
            {"roles": ["conversation", "feedback"], "steps": 100, "weights": {"label": 0.0}},
        ],
    },
    options=NoOptions,
)
