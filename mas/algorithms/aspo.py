"""ASPO, arXiv 2508.19201: DAPO, and a bounded bonus for tools that are used early in episodes that are won."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="ASPO",
        paper="2508.19201",
        does="DAPO, and won episodes that use a tool earlier than others of their group count more.",
        differs=("delta and bound are ours; positions and lengths in tokens of the whole team; no over-long penalty"),
        scenario="tool_use",
    ),
    parts={
        "sampler": {"mode": "parallel", "refill": 2},
        "advantage": {"early": {"delta": -2.0, "bound": 0.7}},
        "loss": {"clip_high": 0.28, "aggregation": "token_mean", "entropy": 0.0},
    },
    options=NoOptions,
)
