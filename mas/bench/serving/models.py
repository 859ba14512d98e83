"""Bases and adapters made on the spot: random weights from a seed, Qwen3 architecture, the tiny tokenizer."""

from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from mas.bench.serving.options import SIZES
from mas.config.options import ModelOptions
from mas.core.seeds import derive_seed
from mas.observe.atomic import write_directory_atomic
from mas.serving.model import BaseModel, load_base
from mas.serving.peft_files import to_files
from mas.serving.tiny import tiny_model, tiny_tokenizer
from mas.serving.weights import AdapterWeights

SPREAD = 0.1
"""Standard deviation of B: adapters that change the log-probabilities by tenths of a nat."""


def make_base(size: str, directory: Path, *, seed: int, threads: int) -> BaseModel:
    """Write a model of this size to the directory and load it from there."""
    shape = SIZES[size].model_copy(update={"seed": seed})
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers annotates in part
    tiny_model(shape).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return load_base(ModelOptions(path=str(directory), threads=threads))


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


def write_adapters(base: BaseModel, adapters: dict[str, AdapterWeights], directory: Path) -> dict[str, Path]:
    """A PEFT directory for each adapter, by name."""
    paths = {name: directory / name for name in adapters}
    for name, weights in adapters.items():
        write_directory_atomic(paths[name], to_files(weights, base.name))
    return paths
