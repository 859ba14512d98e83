"""Attention inside a packed batch: every token sees the tokens before it on its own path through the forest.

Parts of the attention (see `PackedLayout`) are softmaxes of their own that are merged by their log-sum-exp. Backward
runs each part again with the merged output and log-sum-exp, as ring attention does: a part's probabilities are then
those of the whole, and so are its gradients. On a CPU that is torch's flash kernel, and nothing quadratic in the pack
is held. On CUDA it is flex attention with the same forest as its block mask.

Shape legend: M tokens, Q query heads, H key-value heads, D head size; B parts of S queries and L keys.
Sources: FlashAttention-2, arXiv 2307.08691, section 3; Ring Attention, arXiv 2310.01889, section 3.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from mas.serving.layout import AttentionPart, PackedLayout, Place

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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
        return in_parts(query_MQD, key_MHD, value_MHD, layout, scale)
    return in_trees(query_MQD, key_MHD, value_MHD, layout, scale, window)


def in_parts(query_MQD: Tensor, key_MHD: Tensor, value_MHD: Tensor, layout: PackedLayout, scale: float) -> Tensor:
    """On a CPU: part by part."""
    mixed_MQD: Tensor = _MergedParts.apply(query_MQD, key_MHD, value_MHD, layout, scale)  # type: ignore[no-untyped-call]
    return mixed_MQD


class _MergedParts(torch.autograd.Function):
    """All parts, merged."""

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
