"""Root-mean-square norms with a backward pass of their own, for training in float32 on a CPU.

Written out as models do it, autograd runs some twenty passes over memory for one norm, more time than a small model's
matrix products take. Two numbers a row are all that backward needs.

Shape legend: M rows, D size.
Source: RMSNorm, arXiv 1910.07467, equation 4.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_NEAR = 1e-5
"""Relative difference up to which a module computes this norm."""


def quicken_norms(model: nn.Module) -> int:
    """Let every module that computes weight x / rms(x) do so in this way where it is trained; returns how many.

    A module is known by what it computes: others with the name of a norm stay as they are.
    """
    changed = 0
    for module in model.modules():
        eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None)
        weight = getattr(module, "weight", None)
        if isinstance(eps, float) and isinstance(weight, Tensor) and _is_rms_norm(module, weight, eps):
            module.forward = _quick(module.forward, weight, eps)
            changed += 1
    return changed


def _is_rms_norm(module: nn.Module, weight_D: Tensor, eps: float) -> bool:
    if not type(module).__name__.endswith("RMSNorm"):
        return False
    x_2D = torch.linspace(-1, 2, 2 * len(weight_D), dtype=weight_D.dtype, device=weight_D.device).view(2, -1)
    with torch.no_grad():
        theirs: Tensor = module(x_2D)
        ours = weight_D * x_2D * (x_2D.square().mean(-1, keepdim=True) + eps).rsqrt()
    return weight_D.dtype == torch.float32 and bool((ours - theirs).norm() <= _NEAR * theirs.norm())


def _quick(plain: Callable[[Tensor], Tensor], weight_D: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not x.is_cuda and x.dtype == weight_D.dtype:
            found: Tensor = _RmsNorm.apply(x, weight_D, eps)  # type: ignore[no-untyped-call]
            return found
        return plain(x)

    return forward


class _RmsNorm(torch.autograd.Function):
    """y = w x r with r = (mean x^2 + eps)^-1/2; dx = r (w dy - x r^2 mean(x w dy)). The weight is frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        x_MD = x.flatten(0, -2)
        norm_M1: Tensor = torch.linalg.vector_norm(x_MD, dim=-1, keepdim=True)
        r_M1 = norm_M1.square_().div_(x_MD.shape[1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x_MD, weight_D, r_M1)
        y: Tensor = (x_MD * r_M1).mul_(weight_D)
        return y.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x_MD, weight_D, r_M1 = ctx.saved_tensors
        slope_MD = grads[0].flatten(0, -2) * weight_D
        along_M1 = (slope_MD * x_MD).sum(-1, keepdim=True).mul_(r_M1.square()).div_(x_MD.shape[1])
        return slope_MD.addcmul_(x_MD, along_M1, value=-1).mul_(r_M1).view_as(grads[0]), None, None
