"""What a model takes in memory, from its configuration alone: nothing of the weights is read.

Leaves out on purpose: what torch and its kernels take for themselves, the cache of an engine other than the embedded
one, and what a step needs for a moment, such as the matrices of attention.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from mas.config.options import ModelOptions
from mas.core.machine import free_memory
from mas.serving.model import FAILURES, NO_CODE, device_of, unloadable

_FLOAT = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes, and the number of parameters.

    Attributes:
        weights: of the base. adapter: of one adapter's parameters in float32, of the rank that `model.lora` says.
        cached: of the keys and values of one token.
        activation: of what the backward pass keeps of one token, without logits; layer_input: of the inputs of all
            layers alone.
        logits: of one token's logits in float32.
    """

    parameters: int
    weights: int
    adapter: int
    cached: int
    activation: int
    layer_input: int
    logits: int

    @classmethod
    def of(cls, options: ModelOptions, source: str | Path) -> "Footprint":
        """Of a model directory or hub id, whose configuration is read.

        Raises:
            ModelError: the configuration cannot be read, or is of no causal language model.
        """
        dtype = getattr(torch, options.dtype)
        try:
            config = AutoConfig.from_pretrained(source, **NO_CODE)
            with torch.device("meta"):
                kind: Any = AutoModelForCausalLM  # transformers annotates in part
                model = kind.from_config(config, dtype=dtype, attn_implementation=None, **NO_CODE)
        except FAILURES as error:
            raise unloadable(str(source), error) from error
        text, size = config.get_text_config(), dtype.itemsize
        heads = text.num_attention_heads
        head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
        key_heads = getattr(text, "num_key_value_heads", None) or heads
        head = model.get_output_embeddings()
        layers = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear) and one is not head}
        rank, targets = options.highest_rank, options.targets
        adapted = [one for name, one in layers.items() if name.rpartition(".")[2] in targets]
        floats = 0 if size == _FLOAT else _FLOAT * sum(one.in_features for one in adapted)  # inputs, for the adapters
        parameters = sum(one.numel() for one in model.parameters())
        return cls(
            parameters=parameters,
            weights=parameters * size,
            adapter=_FLOAT * sum(rank * (one.in_features + one.out_features) for one in adapted),
            cached=2 * size * text.num_hidden_layers * key_heads * head_size,
            activation=size * sum(one.in_features + one.out_features for one in layers.values()) + floats,
            layer_input=size * text.num_hidden_layers * text.hidden_size,
            logits=_FLOAT * text.vocab_size,
        )


def free_on(options: ModelOptions) -> int | None:
    """Bytes that are free on the device that the options name; None: unknown."""
    device = device_of(options.device)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
