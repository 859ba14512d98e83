"""Bases and adapters made on the spot, and their copies without our code: random weights from a seed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from mas.core.seeds import derive_seed
from mas.observe.files import write_directory_atomic
from mas.serving.adapter_files import to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import WEIGHTS, BaseModel

SPREAD = 0.1
"""Standard deviation of B: adapters that change the log-probabilities by tenths of a nat."""


def parameters(base: BaseModel) -> int:
    """Weights of the base; tied ones count once."""
    return sum(tensor.numel() for tensor in base.model.parameters())


def device_name(base: BaseModel) -> str:
    """`cpu`, or the name of the base's CUDA device."""
    device = base.bank.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def make_adapter(base: BaseModel, *seed: int | str) -> AdapterWeights:
    """An adapter that is heard: its B is normal instead of zero."""
    number = derive_seed("bench-adapter", *seed)
    weights = base.bank.create(base.options.lora, number)
    generator = torch.Generator().manual_seed(number)
    for _, b_OR in weights.pairs.values():
        b_OR.copy_(torch.randn(b_OR.shape, generator=generator) * SPREAD)
    return weights


def write_adapters(base: BaseModel, adapters: Mapping[str, AdapterWeights], directory: Path) -> dict[str, Path]:
    """A PEFT directory for each adapter, by name."""
    paths = {name: directory / name for name in adapters}
    for name, weights in adapters.items():
        write_directory_atomic(paths[name], to_files(weights, base.origin))
    return paths


def plain_model(base: BaseModel) -> PreTrainedModel:
    """The base once more, without our adapters; nothing ends a completion early."""
    model: Any = AutoModelForCausalLM.from_pretrained(base.name, dtype=getattr(torch, base.options.dtype), **WEIGHTS)
    model.generation_config.eos_token_id = None
    model.to(base.bank.device).eval()
    found: PreTrainedModel = model
    return found


def peft_model(base: BaseModel, paths: Mapping[str, Path], *, is_trainable: bool = False) -> Any:
    """A `PeftModel` on a base of its own, with all adapters loaded from their files."""
    from peft import PeftModel

    names = list(paths)
    model = PeftModel.from_pretrained(
        plain_model(base), paths[names[0]], adapter_name=names[0], is_trainable=is_trainable
    )
    for name in names[1:]:
        model.load_adapter(paths[name], adapter_name=name, is_trainable=is_trainable)
    return model.eval()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Within the block, torch computes in this thread with as many."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
