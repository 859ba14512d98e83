"""WaltzRL, arXiv 2510.08240: the feedback agent is trained first, then both, without pay for labels alone; each
one's rewards whitened over its batch."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import StageSettings
from mas.core.options import Options

STAGES = (
    StageSettings(roles=("feedback",), steps=5),
    StageSettings(roles=("conversation", "feedback"), steps=100, weights={"label": 0.0}),
)
"""Who trains when, and what is paid then."""


class WaltzrlOptions(Options):
    """`stages`: who trains for how many steps, and what is paid then; empty: all roles, all the time."""

    stages: tuple[StageSettings, ...] = STAGES


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
    },
    options=WaltzrlOptions,
    places={"stages": "stages"},
)
