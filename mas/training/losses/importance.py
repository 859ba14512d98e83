"""Truncated importance sampling: what makes up for samples of slightly other probabilities than the learner's.

Shape legend: J loss tokens.
"""

from dataclasses import dataclass

from torch import Tensor

from mas.training.losses.ratios import log_ratio


def importance_weights(start_J: Tensor, behaviour_J: Tensor) -> Tensor:
    """w = pi_start / behaviour, untruncated and without gradient; the log ratio is clamped to [-20, 20] first."""
    return log_ratio(start_J.detach(), behaviour_J).exp()


def truncated(importance_J: Tensor, cap: float) -> Tensor:
    """min(w, cap): bounded variance for a bias where w is above the cap.

    Source: Ionides, "Truncated importance sampling", 2008; between engine and learner: Yao et al., "Your efficient RL
    framework secretly brings you off-policy RL training", 2025.
    """
    return importance_J.clamp(max=cap)


@dataclass(frozen=True, slots=True)
class ImportanceStatistics:
    """How far samples are from the learner's policy.

    `ess`: effective sample size as a share, (sum w)^2 / (n sum w^2), 1 where all weights are equal. `largest`: the
    greatest weight.
    """

    ess: float
    largest: float


def importance_statistics(importance_J: Tensor) -> ImportanceStatistics:
    """Of the untruncated weights of one adapter's tokens, one at least."""
    weights_J = importance_J.double()  # squares of weights up to exp(20)
    ess = weights_J.sum().square() / (len(weights_J) * weights_J.square().sum())
    return ImportanceStatistics(ess=float(ess), largest=float(weights_J.max()))
