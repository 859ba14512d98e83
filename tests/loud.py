"""Adapters that are heard: their weights are large enough to change what is said."""

import torch

from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel


def loud_adapter(base: BaseModel, seed: int, spread: float = 0.2) -> AdapterWeights:
    """An adapter whose B is normal with this spread instead of zero: it changes the logits by whole nats."""
    weights = base.bank.create(base.options.lora, seed)
    generator = torch.Generator().manual_seed(seed)
    for _, b_OR in weights.pairs.values():
        b_OR.copy_(torch.randn(b_OR.shape, generator=generator) * spread)
    return weights
