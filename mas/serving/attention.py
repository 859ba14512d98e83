"""Attention of rows that decode one token each, without a copy of the cache.

Several query heads read one key-value head. transformers repeats keys and values for each of them in every step; here
the heads of a group take the place of query positions, so that the cache is read as it lies.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "mas_grouped"


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
