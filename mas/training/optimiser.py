"""AdamW over one set of tensors: making it, checking and clipping gradients, and its state as tensors."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from mas.config.options import LearnerOptions
from mas.core.errors import CheckpointError, TrainingError


def adamw(parameters: Sequence[Tensor], options: LearnerOptions, lr: float) -> AdamW:
    """For tensors that from now on have gradients."""
    for tensor in parameters:
        tensor.requires_grad_(True)
    return AdamW(
        parameters,
        lr=lr,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
        fused=options.fused,
    )


def set_lr(optimisers: Mapping[str, AdamW], lr: float) -> None:
    """From the next step on."""
    for optimiser in optimisers.values():
        for group in optimiser.param_groups:
            group["lr"] = lr


def check_gradients(trained: Mapping[str, Sequence[Tensor]], touched: Collection[str], what: str = "adapter") -> None:
    """Check that exactly the sets that had rows have gradients.

    Args:
        touched: names of those that had rows. what: they are; errors name it.

    Raises:
        TrainingError: a gradient reached what had no rows, or is missing.
    """
    for name, parameters in trained.items():
        missing = [tensor.grad is None for tensor in parameters]
        if name not in touched and not all(missing):
            raise TrainingError(f"{what} {name!r} has no rows in this step and yet a gradient reached it")
        if name in touched and any(missing):
            raise TrainingError(f"{what} {name!r} has rows but {sum(missing)} of its tensors have no gradient")


def gradient_norms(
    trained: Mapping[str, Sequence[Tensor]], touched: Collection[str], clip_norm: float, what: str = "adapter"
) -> dict[str, float]:
    """Norm of each touched set's gradient, now clipped. Checks all sets before any of them changes.

    A norm of 0 is no error: clipped tokens, or equal outputs of opposite advantage, can leave nothing to learn.

    Args:
        touched: names of those that had rows. what: they are; errors name it.

    Raises:
        TrainingError: a gradient reached what had no rows, is missing, or is not finite.
    """
    check_gradients(trained, touched, what)
    norms = {}
    for name in trained:
        if name in touched:
            norms[name] = float(torch.nn.utils.clip_grad_norm_(trained[name], clip_norm))
            if not math.isfinite(norms[name]):
                raise TrainingError(
                    f"the gradient of {what} {name!r} is {norms[name]}: a reward, an advantage or a weight is not "
                    "finite; this update changed no adapter"
                )
    return norms


def optimiser_tensors(optimiser: AdamW, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """The state as tensors named `INDEX.KEY`, by the index of the parameter; nothing where it never made a step."""
    tensors = {}
    for index, parameter in enumerate(parameters):
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{index}.{key}"] = torch.as_tensor(value).detach().cpu().contiguous()
    return tensors


def restore_optimiser(optimiser: AdamW, parameters: Sequence[Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Put `optimiser_tensors` back, whatever the optimiser did before."""
    states: dict[Any, Any] = optimiser.state
    states.clear()
    on_device = optimiser.defaults["fused"]
    for index, parameter in enumerate(parameters):
        own = {key.partition(".")[2]: value for key, value in tensors.items() if key.startswith(f"{index}.")}
        if own:
            states[parameter] = {
                key: value.to(parameter.device) if on_device or key != "step" else value for key, value in own.items()
            }


def kept_tensors(parameters: Mapping[str, Sequence[Tensor]], optimisers: Mapping[str, AdamW]) -> dict[str, Tensor]:
    """Sets of tensors and the states of their optimisers, by name."""
    found: dict[str, Tensor] = {}
    for name, own in parameters.items():
        found |= {f"{name}/{index}": one.detach().cpu().contiguous() for index, one in enumerate(own)}
        state = optimiser_tensors(optimisers[name], own)
        found |= {f"{name}/optimiser.{key}": value for key, value in state.items()}
    return found


def restore_kept(
    parameters: Mapping[str, Sequence[Tensor]],
    optimisers: Mapping[str, AdamW],
    tensors: Mapping[str, Tensor],
    what: str,
) -> None:
    """Put `kept_tensors` back. `what`: they are of; errors name it.

    Raises:
        CheckpointError: tensors are missing or have another shape; nothing is changed.
    """
    mine = {f"{name}/{at}": one for name, own in parameters.items() for at, one in enumerate(own)}
    wanted = {name: one.shape for name, one in mine.items()}
    have = {name: tensors[name].shape for name in wanted if name in tensors}
    if have != wanted:
        wrong = sorted(name for name in wanted if have.get(name) != wanted[name])
        raise CheckpointError(
            f"the checkpoint holds another {what}: {len(wrong)} of {len(wanted)} tensors are missing or have "
            f"another shape, {wrong[0]!r} first; go on with model.lora and algorithm as they were"
        )
    with torch.no_grad():
        for name, one in mine.items():
            one.copy_(tensors[name])
    for name, own in parameters.items():
        prefix = f"{name}/optimiser."
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        restore_optimiser(optimisers[name], own, state)
