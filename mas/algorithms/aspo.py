"""ASPO, arXiv 2508.19201: DAPO, and a bounded bonus for tools that are used early in episodes that are won."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class AspoOptions(Options):
    """Won episodes that use tools early gain clip(`delta` (p - mean p) / mean L, -`bound` |A|, `bound` |A|), p the
    tokens before the first call, L those of the episode. `refill`: a task with nothing to teach is replaced, so many
    times a step."""

    delta: float = -2.0
    bound: float = 0.7
    refill: int = 2


algorithm = Algorithm(
    recipe=Recipe(
        title="ASPO",
        paper="2508.19201",
        does="DAPO, and won episodes that use a tool earlier than others of their group count more.",
        differs=("delta and bound are ours; positions and lengths in tokens of the whole team; no over-long penalty"),
        scenario="tool_use",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "loss": {"clip_high": 0.28, "aggregation": "token_mean", "entropy": 0.0},
    },
    options=AspoOptions,
    places={"delta": "advantage.early.delta", "bound": "advantage.early.bound", "refill": "sampler.refill"},
)
