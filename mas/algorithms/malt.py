"""MALT, arXiv 2412.01928: three candidates at every role, all carried on; values are means over children, positive
above a half. Who speaks first imitates, the others also prefer. Our reading: one loss, on trees of the policy of
each step."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import PREFERENCE, PreferenceSettings


class MaltOptions(PreferenceSettings):
    """`sft_only`: roles that only imitate. `max_leaves`: ends of a task's tree at most."""

    threshold: float | None = 0.5
    sft: float = 1.0
    sft_only: tuple[str, ...] = ("generator",)
    max_leaves: int = 256


algorithm = Algorithm(
    recipe=Recipe(
        title="MALT",
        paper="2412.01928",
        does="Full trees over the members of a turn; each imitates and prefers what leads to success.",
        differs="on-policy, SFT and DPO in one loss, on trees of each step; no vote of three at the end",
        scenario="refine",
    ),
    parts={
        "sampler": {"mode": "full_tree", "candidates": 3},
        "update": "preference",
    },
    options=MaltOptions,
    places={**PREFERENCE, "sft_only": "preference.sft_only", "max_leaves": "sampler.max_leaves"},
)
