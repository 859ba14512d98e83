"""The attention and the norms of the base model, where mas computes them otherwise than transformers.

Rows that decode one token each (`group_queries`): several query heads read one key-value head. transformers repeats
keys and values for each of them in every step; here the heads of a group take the place of query positions, so that the
cache is read as it lies.

A packed batch (`tree_attention`), whose layout the model is given as the argument `packing`: every token sees the
tokens before it on its own path through the forest. Parts of the attention (see `PackedLayout`) are softmaxes of their
own that are merged by their log-sum-exp. Backward runs each part again with the merged output and log-sum-exp, as ring
attention does: a part's probabilities are then those of the whole, and so are its gradients. On a CPU that is torch's
flash kernel, and nothing quadratic in the pack is held. On CUDA it is flex attention with the same forest as its mask.

Root-mean-square norms in training in float32 on a CPU (`quicken_norms`): written out as models do it, autograd runs
some twenty passes over memory for one norm, more time than a small model's matrix products take. Two numbers a row are
all that backward needs.

Shape legend: M tokens or rows, Q query heads, H key-value heads, D head size; B parts of S queries and L keys.
Sources: FlashAttention-2, arXiv 2307.08691, section 3; Ring Attention, arXiv 2310.01889, section 3; RMSNorm, arXiv
1910.07467, equation 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from mas.core.errors import ModelError
from mas.serving.packed_layout import AttentionPart, PackedLayout, Place

_NAME = "mas_grouped"
_UNKNOWN = ("softcap", "s_aux", "position_bias")
"""Arguments that change what attention computes."""
_IGNORED = ("softcap", "s_aux")
"""Those that torch's attention leaves out without a word."""
_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_NEAR = 1e-5
"""Relative difference up to which a module computes this norm."""


def group_queries(model: PreTrainedModel) -> None:
    """Let a model that uses torch's attention decode with this one; all else it computes as before."""
    if model.config.get_text_config()._attn_implementation != "sdpa":
        return
    AttentionInterface.register(_NAME, _grouped)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)


def _grouped(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """query [N, Q, T, D], key and value [N, H, S, D], mask [N, 1, T, S]; returns [N, T, Q, D]."""
    for name in _IGNORED:
        if options.get(name) is not None:
            raise ModelError(
                f"its attention has {name!r}, which torch's does not compute: mas would sample from "
                "and train another model than this one"
            )
    layout: PackedLayout | None = options.pop("packing", None)
    if layout is not None:
        return _packed(query, key, value, layout, options), None
    rows, queries, length, size = query.shape
    heads = key.shape[1]
    if length > 1 or queries == heads or attention_mask is None or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    mixed = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(rows, heads, queries // heads, size),
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=options.get("dropout", 0.0),
        scale=options.get("scaling"),
    )
    return mixed.reshape(rows, 1, queries, value.shape[3]), None


def _packed(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, options: dict[str, Any]) -> Tensor:
    for name in _UNKNOWN:
        if options.get(name) is not None:
            raise ModelError(f"attention with {name!r} cannot be packed; use learner.pack=false without sharing")
    rows, _, length, size = query.shape
    if value.shape[-1] != size:
        raise ModelError(
            f"attention with values of size {value.shape[-1]} and queries of size {size} cannot be packed; use "
            "learner.pack=false without sharing"
        )
    query_MQD, key_MHD, value_MHD = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    scale, window = options.get("scaling") or size**-0.5, options.get("sliding_window")
    mixed_MQD = tree_attention(query_MQD, key_MHD, value_MHD, layout, scale=scale, window=window)
    return mixed_MQD.view(rows, length, *mixed_MQD.shape[1:])


def tree_attention(
    query_MQD: Tensor,
    key_MHD: Tensor,
    value_MHD: Tensor,
    layout: PackedLayout,
    *,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """The mixed values [M, Q, D]. `window`: how many tokens back a token sees, itself included; None: all."""
    if window is not None and window >= layout.longest:
        window = None
    if query_MQD.device.type == "cuda":
        return in_blocks(query_MQD, key_MHD, value_MHD, layout, scale, window)
    if query_MQD.device.type == "cpu" and window is None:
        mixed_MQD: Tensor = MergedParts.apply(query_MQD, key_MHD, value_MHD, layout, scale)  # type: ignore[no-untyped-call]
        return mixed_MQD
    return in_trees(query_MQD, key_MHD, value_MHD, layout, scale, window)


class MergedParts(torch.autograd.Function):
    """On a CPU: part by part, merged. Its arguments are those of `in_trees`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, scale: float) -> Tensor:
        out_MQD = torch.empty_like(query, memory_format=torch.contiguous_format)
        lse_MQ = query.new_empty(query.shape[:2], dtype=torch.float32)
        for part in layout.parts:
            q, k, v = _rows(query, part, part.queries), _rows(key, part, part.keys), _rows(value, part, part.keys)
            mixed, lse = _forward(q, k, v, 0.0, part.is_causal, attn_mask=_mask(part, query), scale=scale)
            mixed_KQD, lse_KQ = _flat(mixed), lse.transpose(1, 2).flatten(0, 1)
            taken = part.queries
            if part.real is not None and isinstance(taken, Tensor):
                taken, mixed_KQD, lse_KQ = taken[part.real], mixed_KQD[part.real], lse_KQ[part.real]
            if not part.is_first:
                before_KQ = lse_MQ[taken]
                both_KQ = torch.logaddexp(before_KQ, lse_KQ)
                old_KQD = out_MQD[taken] * (before_KQ - both_KQ).exp()[..., None]
                mixed_KQD = torch.addcmul(old_KQD, mixed_KQD, (lse_KQ - both_KQ).exp()[..., None])
                lse_KQ = both_KQ
            out_MQD[taken] = mixed_KQD.to(out_MQD.dtype)
            lse_MQ[taken] = lse_KQ
        ctx.save_for_backward(query, key, value, out_MQD, lse_MQ)
        ctx.layout, ctx.scale = layout, scale
        return out_MQD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, out_MQD, lse_MQ = ctx.saved_tensors
        into = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (query, key, value)]
        for part in ctx.layout.parts:
            q, k, v = _rows(query, part, part.queries), _rows(key, part, part.keys), _rows(value, part, part.keys)
            out, lse = _rows(out_MQD, part, part.queries), _rows(lse_MQ[..., None], part, part.queries)[..., 0]
            grad = _rows(grads[0], part, part.queries)
            if part.real is not None:
                grad = _without_repetitions(grad, part.real)
            mask = _mask(part, query)
            found = _backward(grad, q, k, v, out, lse, 0.0, part.is_causal, attn_mask=mask, scale=ctx.scale)
            for total, places, new in zip(into, (part.queries, part.keys, part.keys), found, strict=True):
                if isinstance(places, Tensor):
                    total.index_add_(0, places, _flat(new))
                else:
                    total[places] += _flat(new)
        return into[0], into[1], into[2], None, None


def _rows(x_MHD: Tensor, part: AttentionPart, places: Place) -> Tensor:
    """A part's tokens as [B, H, S, D]."""
    taken_MHD = x_MHD[places]
    return taken_MHD.reshape(part.rows, -1, *taken_MHD.shape[1:]).transpose(1, 2)


def _mask(part: AttentionPart, query: Tensor) -> Tensor | None:
    return None if part.mask_B1SS is None else part.mask_B1SS.to(query.dtype)


def _flat(x_BHSD: Tensor) -> Tensor:
    """The same back as [B S, H, D]."""
    return x_BHSD.transpose(1, 2).flatten(0, 1)


def _without_repetitions(grad_BQSD: Tensor, real: Tensor) -> Tensor:
    """The output's gradient of a part's queries, zero at repeated ones."""
    kept = torch.zeros(grad_BQSD.shape[0] * grad_BQSD.shape[2], 1, 1, dtype=grad_BQSD.dtype, device=real.device)
    kept[real] = 1
    return grad_BQSD * kept.view(grad_BQSD.shape[0], 1, -1, 1)


def in_trees(
    query_MQD: Tensor, key_MHD: Tensor, value_MHD: Tensor, layout: PackedLayout, scale: float, window: int | None = None
) -> Tensor:
    """On any device: tree by tree, with a mask that is quadratic in the tree."""
    query, key, value = (x.transpose(0, 1)[None] for x in (query_MQD, key_MHD, value_MHD))
    mixed = [
        scaled_dot_product_attention(
            query[:, :, start:stop],
            key[:, :, start:stop],
            value[:, :, start:stop],
            attn_mask=layout.mask(start, stop, window),
            scale=scale,
            enable_gqa=True,
        )
        for start, stop in layout.trees
    ]
    return torch.cat(mixed, dim=2)[0].transpose(0, 1)


def in_blocks(
    query_MQD: Tensor, key_MHD: Tensor, value_MHD: Tensor, layout: PackedLayout, scale: float, window: int | None = None
) -> Tensor:
    """On CUDA: one call whose block mask skips what no token of a block sees."""
    attend = _compiled() if query_MQD.is_cuda else flex_attention
    mixed: Tensor = attend(
        *(x.transpose(0, 1)[None] for x in (query_MQD, key_MHD, value_MHD)),
        block_mask=layout.block_mask(window),
        scale=scale,
        enable_gqa=True,
    )
    return mixed[0].transpose(0, 1)


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


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
