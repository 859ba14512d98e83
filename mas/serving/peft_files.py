"""Adapters as PEFT directories: `adapter_config.json` and `adapter_model.safetensors`, readable by PEFT and vLLM."""

import json
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from mas.config.options import LoraOptions
from mas.core.errors import CheckpointError
from mas.serving.lora import AdapterBank, AdapterWeights

_PREFIX = "base_model.model."


def to_files(weights: AdapterWeights, base_name: str) -> dict[str, bytes]:
    """File name -> content of a PEFT LoRA directory."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": weights.options.rank,
        "lora_alpha": weights.options.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in weights.pairs}),
        "inference_mode": True,
    }
    tensors = {}
    for name, (a_RI, b_OR) in weights.pairs.items():
        tensors[f"{_PREFIX}{name}.lora_A.weight"] = a_RI.detach().cpu().contiguous()
        tensors[f"{_PREFIX}{name}.lora_B.weight"] = b_OR.detach().cpu().contiguous()
    return {
        "adapter_config.json": json.dumps(config, indent=1, sort_keys=True).encode(),
        "adapter_model.safetensors": safetensors.torch.save(tensors),
    }


def from_directory(path: Path, bank: AdapterBank) -> AdapterWeights:
    """Read a PEFT LoRA directory whose layers fit the bank's model.

    Raises:
        CheckpointError: not such a directory, unreadable, or made for another model.
    """
    try:
        config = json.loads((path / "adapter_config.json").read_text())
        tensors = safetensors.torch.load((path / "adapter_model.safetensors").read_bytes())
        options = LoraOptions(
            rank=config["r"], alpha=float(config["lora_alpha"]), targets=tuple(config["target_modules"])
        )
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} is not a PEFT LoRA directory that can be read: {error}") from error
    names = [name for name in bank.shapes if f"{_PREFIX}{name}.lora_A.weight" in tensors]
    pairs = {name: _pair(path, tensors, name, options, bank) for name in names}
    if 2 * len(pairs) != len(tensors) or not pairs:
        raise CheckpointError(
            f"{path} holds {len(tensors)} tensors, {2 * len(pairs)} of them fit the model: "
            "was it made for another base?"
        )
    return AdapterWeights(options, pairs)


def _pair(
    path: Path, tensors: dict[str, torch.Tensor], name: str, options: LoraOptions, bank: AdapterBank
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, outputs = bank.shapes[name]
    wanted = {"lora_A": (options.rank, inputs), "lora_B": (outputs, options.rank)}
    pair = []
    for part, shape in wanted.items():
        tensor = tensors.get(f"{_PREFIX}{name}.{part}.weight")
        if tensor is None or tuple(tensor.shape) != shape:
            have = None if tensor is None else tuple(tensor.shape)
            raise CheckpointError(f"{path}: {name}.{part} has shape {have}, the model needs {shape}")
        pair.append(tensor.to(bank.device, torch.float32))
    return pair[0], pair[1]
