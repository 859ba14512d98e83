"""Adapters in vLLM on CPUs: matrix products over all adapters of a batch.

vLLM's own code copies A and B once for every token. It is wrong, too, where rows without adapter meet a vLLM whose
`max_loras` places are all taken: their place is -1, which reads the last one. Here such rows get nothing.

`CpuLora` is mixed into vLLM's worker (its option `worker_extension_cls`). No file of vLLM is touched.
Shape legend: M tokens, I inputs, O outputs, R rank, P places up to the last one in use, C = P R columns.
"""

from typing import Any

import torch
from torch import Tensor

VERSIONS = "0.32."
"""Releases of vLLM whose internals this was written for."""


class CpuLora:
    """What vLLM's worker learns."""

    def use_grouped_lora(self) -> None:
        """Replace how the worker's layers add adapters, from now on."""
        from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

        PunicaWrapperCPU.add_lora_linear = add_lora_linear


def add_lora_linear(
    wrapper: Any,
    y: Tensor,
    x: Tensor,
    lora_a_stacked: tuple[Tensor, ...],
    lora_b_stacked: tuple[Tensor, ...],
    scale: float,
    output_slices: tuple[int, ...],
    **_: object,
) -> None:
    """Add every token's adapter to y in place; slices of y lie side by side and have adapters of their own.

    As in vLLM: A [places, 1, R, I], B [places, 1, O, R], products with A in float32, with B in y's type.

    Args:
        wrapper: vLLM's, whose `token_lora_indices` give each token's place; -1 is the bare base.
    """
    places_M = wrapper.token_lora_indices
    count = int(places_M.max()) + 1
    if not count:
        return
    x_MI, y_MO = x.view(-1, x.shape[-1]).float(), y.view(-1, y.shape[-1])
    columns_C = torch.arange(count).repeat_interleave(lora_a_stacked[0].shape[2])
    mask_MC = (places_M[:, None] == columns_C) * scale
    start = 0
    for a_P1RI, b_P1OR, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
        a_CI = a_P1RI[:count, 0].flatten(0, 1)
        b_CO = b_P1OR[:count, 0].transpose(1, 2).flatten(0, 1)
        low_MC = (x_MI @ a_CI.float().T) * mask_MC
        y_MO[:, start : start + width].addmm_(low_MC.to(y.dtype), b_CO.to(y.dtype))
        start += width
