"""The weights of one LoRA adapter.

Shape legend: I inputs, O outputs, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mas.config.options import LoraOptions


@dataclass(frozen=True, slots=True, eq=False)
class AdapterWeights:
    """One adapter: per layer name the pair A [R, I], B [O, R]. `options` gives rank and scale."""

    options: LoraOptions
    pairs: Mapping[str, tuple[Tensor, Tensor]] = field(repr=False)

    @property
    def scale(self) -> float:
        """alpha / rank."""
        return self.options.alpha / self.options.rank

    def parameters(self) -> list[Tensor]:
        """All tensors in a fixed order: A then B, layer by layer."""
        return [tensor for pair in self.pairs.values() for tensor in pair]

    def approach(self, other: AdapterWeights, share: float) -> None:
        """Move every number by this share of its distance to that of the other adapter, in place."""
        with torch.no_grad():
            for mine, its in zip(self.parameters(), other.parameters(), strict=True):
                mine.lerp_(its, share)

    def snapshot(self) -> AdapterWeights:
        """A frozen copy that later training cannot change."""
        return AdapterWeights(
            self.options, {name: (a.detach().clone(), b.detach().clone()) for name, (a, b) in self.pairs.items()}
        )
