"""ST-PPO's correction of the clipping bias: updates from which clipping takes much are made smaller.

Shape legend: J loss tokens of several rows, one after the other.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from mas.training.losses.policy import clipped_share


def taken_loss(ratio_J: Tensor, advantage_J: Tensor, *, clip_low: float | None, clip_high: float | None) -> Tensor:
    """-A rho of tokens that a bound holds, else 0. Its gradient is what clipping takes from that of -A rho.

    The clipping bias C(theta) is this gradient, with the weights that tokens have in the loss: mean over tokens outside
    of the bounds of rho A grad log pi. rho is a token's own (S-PPO) or its turn's (ST-PPO, equation 4).
    Source: ST-PPO, arXiv 2511.20718v1, lemma 4.2.
    """
    held_J = clipped_share(ratio_J, advantage_J, clip_low=clip_low, clip_high=clip_high)
    return -held_J * advantage_J * ratio_J


def bias_norm(gradients: Sequence[Tensor]) -> float:
    """||C||_2 of an adapter, from what clipping takes from the gradients of its tensors; 0 where it takes nothing."""
    return math.sqrt(math.fsum(float(one.double().square().sum()) for one in gradients))


def bias_correction(norm: float) -> float:
    """1 / (1 + ||C||_2), which the gradient of an update is multiplied by; 1 where nothing is clipped.

    Source: ST-PPO, arXiv 2511.20718v1, equations 7 and 8, which divide by ||C||_2. The 1 is ours: on policy C is 0.
    """
    return 1 / (1 + norm)
