"""The attention of the base model: torch's own, and two cases that it does not know.

Rows that decode one token each, without a copy of the cache: several query heads read one key-value head. transformers
repeats keys and values for each of them in every step; here the heads of a group take the place of query positions, so
that the cache is read as it lies.

A packed batch, whose layout the model is given as the argument `packing`: see `mas.serving.tree_attention`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from mas.core.errors import ModelError
from mas.serving.layout import PackedLayout
from mas.serving.tree_attention import tree_attention

_NAME = "mas_grouped"
_UNKNOWN = ("softcap", "s_aux", "position_bias")
"""Arguments that change what attention computes."""
_IGNORED = ("softcap", "s_aux")
"""Those that torch's attention leaves out without a word."""


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
