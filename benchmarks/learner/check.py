"""Whether everybody computed the same: losses and gradients of one step against the padded loop's."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from benchmarks.learner.competitors import LearnerCompetitor
from benchmarks.learner.names import PADDED, ROWS
from mas.core.errors import TrainingError

GRADIENT_GAP = "gradient_gap"
LOSS_GAP = "loss_gap"


def gaps(one: LearnerCompetitor, right: LearnerCompetitor) -> dict[str, float]:
    """`GRADIENT_GAP` and `LOSS_GAP`, the largest over roles.

    The gradient's is ||g - g'|| / ||g'|| over all tensors of a role. The loss's is absolute, over the losses that both
    know: token losses are about 1 and those of a group nearly cancel, so that relative to their mean anything is large.

    Raises:
        TrainingError: other roles, other tensors, or a gradient is missing.
    """
    gradients = [_gradient(one, role, right) for role in right.adapters]
    wanted = [_gradient(right, role, right) for role in right.adapters]
    relative = [float((g - w).norm() / w.norm()) for g, w in zip(gradients, wanted, strict=True)]
    losses = [
        abs(one.losses[role][kind] - value)
        for role, known in right.losses.items()
        for kind, value in known.items()
        if kind in one.losses[role]
    ]
    return {GRADIENT_GAP: _largest(relative), LOSS_GAP: _largest(losses)}


def check_gaps(found: Mapping[str, Mapping[str, float]], most: float) -> None:
    """Refuse measurements of steps that were not the same.

    Args:
        found: short name of a row -> its gaps.

    Raises:
        TrainingError: a gap is more than `most`, or no number.
    """
    for name, values in found.items():
        for kind, value in values.items():
            if not value <= most:
                raise TrainingError(
                    f"{ROWS[name]}: {kind.replace('_', ' ')} {value:.1e} to {ROWS[PADDED]}, at most {most:.1e} is "
                    "possible: they do not compute the same, so their speeds do not compare"
                )


def forget_gradients(competitors: Sequence[LearnerCompetitor]) -> None:
    """Nobody holds a gradient any more, so that all start a measurement of memory alike."""
    for one in competitors:
        for tensors in one.adapters.values():
            for tensor in tensors.values():
                tensor.grad = None


def _largest(values: Sequence[float]) -> float:
    """NaN if one is, which `max` would pass over."""
    return float(torch.tensor(values, dtype=torch.float64).max())


def _gradient(one: LearnerCompetitor, role: str, right: LearnerCompetitor) -> Tensor:
    """A role's gradient as one vector in float64, tensors in the order of `right`."""
    own = one.adapters.get(role, {})
    parts = []
    for name in right.adapters[role]:
        gradient = own[name].grad if name in own else None
        if gradient is None:
            raise TrainingError(f"{ROWS[one.name]}: {name} of {role} has no gradient, in {ROWS[PADDED]} it has one")
        parts.append(gradient.detach().double().flatten())
    return torch.cat(parts)
