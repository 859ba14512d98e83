"""The loss of a critic.

Shape legend: J tokens.
"""

import torch
from torch import Tensor


def value_loss(value_J: Tensor, before_J: Tensor, target_J: Tensor, clip: float | None) -> Tensor:
    """Per token, to minimise: max((V - R)^2, (before + clamp(V - before, -clip, clip) - R)^2); None: (V - R)^2.

    With a bound, a value that has moved towards R by more than `clip` in this step has no gradient left.
    Source: as in the code of PPO (OpenAI baselines, ppo2); without a bound: PPO, arXiv 1707.06347, equation 9.

    Args:
        before_J: of the critic at the start of the step, without gradient. target_J: likewise.
    """
    loss_J = (value_J - target_J).square()
    if clip is None:
        return loss_J
    near_J = before_J + (value_J - before_J).clamp(-clip, clip)
    return torch.maximum(loss_J, (near_J - target_J).square())
