"""GRPO-RoC of rStar2-Agent, arXiv 2508.20722: twice as many episodes are played, and the cleanest successes kept."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class GrpoRocOptions(Options):
    """`factor`: so many times as many episodes are played as are kept. `least`: so many failures and so many successes
    are kept where there are as many."""

    factor: int = 2
    least: int = 2


algorithm = Algorithm(
    recipe=Recipe(
        title="GRPO-RoC (rStar2-Agent)",
        paper="2508.20722",
        does=(
            "Twice as many episodes are played; failures stay as they come, of successes those with the fewest failed"
            " tool calls."
        ),
        differs=(
            "an output that does not parse stands for answer marks that do not pair up, and a solved task has one "
            "answer; shares by largest remainder; equal groups stay"
        ),
        scenario="tool_use",
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"clip_high": 0.28, "entropy": 0.0}},
    options=GrpoRocOptions,
    places={"factor": "sampler.resample.factor", "least": "sampler.resample.least"},
)
