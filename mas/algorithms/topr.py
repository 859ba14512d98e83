"""TOPR, arXiv 2503.14286: a good answer has weight 1, a bad one its bounded ratio to the policy that sampled it."""

from typing import Annotated, Any

from pydantic import Field

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ToprOptions(Options):
    """`bound`: the most that the ratio of a bad answer weighs."""

    bound: Annotated[float, Field(gt=0, le=20)] = 1.0


def loss(signals: Any, options: ToprOptions) -> Any:
    """-w A log pi of each token, w without gradient: 1 where A >= 0, else min(pi(y) / mu(y), bound) of its turn y.

    Args:
        signals: `mas.algorithms.parts.losses.tokens.Signals`; mu is the policy that sampled.

    Returns:
        A tensor of J numbers, one per token.
    """
    turn_J, gap_J = signals.row_J, (signals.logprobs_J - signals.behaviour_J).detach()
    gap_R = gap_J.new_zeros(int(turn_J.max()) + 1).index_add(0, turn_J, gap_J)  # log pi(y) / mu(y) of each of R turns
    ratio_J = gap_R.exp().clamp(max=options.bound)[turn_J]
    weight_J = ratio_J.where(signals.advantage_J < 0, ratio_J.new_ones(()))
    return -weight_J * signals.advantage_J * signals.logprobs_J


algorithm = Algorithm(
    recipe=Recipe(
        title="TOPR (Tapered Off-Policy REINFORCE)",
        paper="2503.14286",
        does="Good answers are learned as in supervised training, bad ones by no more than their bounded ratio.",
        differs="rewards are those of the scenario less their group's mean, where the paper has 1 and -1",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "advantage": {"scale": "none"},
        "loss": {"aggregation": "seq_mean_token_sum", "entropy": 0.0, "importance_cap": None},
    },
    options=ToprOptions,
    loss=loss,
)
