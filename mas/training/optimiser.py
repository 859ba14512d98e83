"""The state of AdamW as tensors, and put back."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from mas.core.errors import CheckpointError


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
