"""The KL as a part of the reward. Free of torch."""

import math
from collections.abc import Sequence

from mas.core.errors import TrainingError


def kl_penalties(logprobs: Sequence[float], reference: Sequence[float], beta: float) -> list[float]:
    """beta x (log pi - log ref) of each token of one turn, to be subtracted from the token's reward.

    Args and errors as of `kl_penalty`, which is their sum. Source: Ziegler et al., arXiv 1909.08593, equation 2.
    """
    if len(logprobs) != len(reference):
        raise TrainingError(
            f"{len(logprobs)} log-probabilities of the policy but {len(reference)} of the reference: both must be of "
            "the same completion"
        )
    return [beta * (own - other) for own, other in zip(logprobs, reference, strict=True)]


def kl_penalty(logprobs: Sequence[float], reference: Sequence[float], beta: float) -> float:
    """beta x sum over the tokens of one turn of (log pi - log ref), to be subtracted from the turn's reward.

    This is the estimator k1; a single turn's may be negative, its mean over samples of pi is the KL divergence.
    Source: Ziegler et al., arXiv 1909.08593, equation 2.

    Args:
        logprobs: of the completion's tokens under the policy that sampled them, in nats. reference: likewise.

    Raises:
        TrainingError: the two lengths differ.
    """
    return math.fsum(kl_penalties(logprobs, reference, beta))
