"""LoRA training in plain torch and transformers, which the server is compared with: hooks, autograd, AdamW."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel

Loss = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


class PlainLora:
    """A model of its own with the pairs of an adapter, which begin as given."""

    def __init__(self, base: BaseModel, weights: AdapterWeights, **adam: float) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(base.name, dtype=torch.float32).requires_grad_(False)
        self.pairs = {
            name: (a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_())
            for name, (a, b) in weights.pairs.items()
        }
        self.scale = weights.scale
        for name, pair in self.pairs.items():
            self.model.get_submodule(name).register_forward_hook(self._hook(pair))
        self.parameters = [one for pair in self.pairs.values() for one in pair]
        betas = adam.pop("beta1"), adam.pop("beta2")
        self.clip = adam.pop("clip") or math.inf
        self.optimiser = torch.optim.AdamW(self.parameters, betas=betas, **adam)  # type: ignore[arg-type]

    def _hook(self, pair: tuple[Tensor, Tensor]) -> Callable[..., Tensor]:
        return lambda _, inputs, output: output + self.scale * (inputs[0] @ pair[0].T @ pair[1].T)

    def logprobs(self, tokens: Sequence[int], targets: Tensor) -> Tensor:
        """Of targets [T] or [T, K]."""
        all_TV = self.model(input_ids=torch.tensor([list(tokens)])).logits[0].log_softmax(-1)
        wide = targets if targets.ndim == 2 else targets[:, None]
        return all_TV.gather(-1, wide).reshape(targets.shape)

    def backward(self, data: Sequence[tuple[Sequence[int], Tensor, Mapping[str, Tensor]]], loss: Loss) -> list[Tensor]:
        """Adds the gradient of the summed loss; the log-probabilities."""
        found = [self.logprobs(tokens, targets) for tokens, targets, _ in data]
        sum((loss(own, inputs) for own, (_, _, inputs) in zip(found, data, strict=True)), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
        return [one.detach() for one in found]

    def step(self) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.clip))
        self.optimiser.step()
        self.optimiser.zero_grad()
        return norm
