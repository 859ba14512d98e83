"""Adapters as PEFT directories: `adapter_config.json` and `adapter_model.safetensors`, readable by PEFT and vLLM.

The configuration names the base as others find it; what is exported has a `README.md` that says how to load it.
`VersionFiles` holds the files of adapter versions that an engine may read: in memory, as long as that is mostly free,
or in a directory that is shared with the engine's machine.
"""

import hashlib
import json
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

import msgspec
import safetensors
import safetensors.torch
import torch

from mas.config.options import LoraOptions
from mas.core.engine import AdapterRef
from mas.core.errors import CheckpointError, EngineError
from mas.observe.files import write_directory_atomic
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model_sources import Origin

_CONFIG, _TENSORS = "adapter_config.json", "adapter_model.safetensors"
_TENSOR_PREFIX = "base_model.model."
_BEYOND = (
    *("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "bias", "lora_bias", "modules_to_save"),
    *("alora_invocation_tokens", "use_qalora", "layer_replication"),
)
"""PEFT options that change the product; an adapter that uses one is refused, not served wrongly."""
_ON_THE_BASE = (None, True, False, "gaussian", "orthogonal", "eva", "mica")
"""Values of PEFT's `init_lora_weights` that leave the base as it is. Others (`pissa`, `olora`, `corda`, `loftq`,
`lora_ga`) take a part out of its weights, and the adapter is to be added to what is left."""
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MEMORY = Path("/dev/shm")
_FOLDER_PREFIX = "mas-adapters-"


def to_files(weights: AdapterWeights, base: Origin) -> dict[str, bytes]:
    """File name -> content of a PEFT LoRA directory."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.name,
        "revision": base.revision,
        "r": weights.options.rank,
        "lora_alpha": weights.options.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in weights.pairs}),
        "inference_mode": True,
    }
    tensors = {}
    for name, (a_RI, b_OR) in weights.pairs.items():
        tensors[f"{_TENSOR_PREFIX}{name}.lora_A.weight"] = a_RI.detach().cpu().contiguous()
        tensors[f"{_TENSOR_PREFIX}{name}.lora_B.weight"] = b_OR.detach().cpu().contiguous()
    return {
        _CONFIG: json.dumps(config, indent=1, sort_keys=True).encode(),
        _TENSORS: safetensors.torch.save(tensors),
    }


def exported_files(weights: AdapterWeights, base: Origin) -> dict[str, bytes]:
    """The same with a `README.md` for people: the base, how its weights differ, how PEFT loads both."""
    at = "" if base.revision is None else f", revision={json.dumps(base.revision)}"
    lines = [
        *("---", f"base_model: {json.dumps(base.name)}", "library_name: peft", "---", ""),
        f"A LoRA adapter of rank {weights.options.rank} (alpha {weights.options.alpha:g}), trained with mas on",
        f"`{base.name}`{'' if base.revision is None else f' at commit `{base.revision}`'}.",
        *(["", base.note] if base.note else []),
        *("", "```python", "from peft import PeftModel", "from transformers import AutoModelForCausalLM", ""),
        f"base = AutoModelForCausalLM.from_pretrained({json.dumps(base.name)}{at})",
        *('model = PeftModel.from_pretrained(base, "path/to/this/directory")', "```", ""),
    ]
    return to_files(weights, base) | {"README.md": "\n".join(lines).encode()}


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the files' names and contents, in hexadecimal digits."""
    found = hashlib.sha256()
    for name, content in sorted(files.items()):
        found.update(f"{name} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def from_directory(path: Path, bank: AdapterBank) -> AdapterWeights:
    """Read a PEFT LoRA directory whose layers fit the bank's model.

    Raises:
        CheckpointError: not such a directory, unreadable, more than plain LoRA, or made for another model.
    """
    try:
        files = {name: (path / name).read_bytes() for name in (_CONFIG, _TENSORS)}
    except OSError as error:
        raise CheckpointError(f"{path} is not a PEFT LoRA directory that can be read: {error}") from error
    return from_files(files, bank, path)


def from_files(files: Mapping[str, bytes], bank: AdapterBank, path: Path | str) -> AdapterWeights:
    """Read the files of such a directory; `path`: where they come from, for errors.

    Raises:
        CheckpointError: as `from_directory`.
    """
    try:
        config = json.loads(files[_CONFIG])
        tensors = safetensors.torch.load(files[_TENSORS])
        beyond = [key for key in _BEYOND if config.get(key) not in (None, False, {}, [], "none")]
        if (start := config.get("init_lora_weights")) not in _ON_THE_BASE:
            beyond.append(f"init_lora_weights={start!r}: the adapter of another base; PEFT can convert it as it saves")
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        if rank < 1 or not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(f"r is {rank} and lora_alpha {alpha}; both must be above 0, and finite")
    except (*_UNREADABLE, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} is not a PEFT LoRA directory that can be read: {error}") from error
    if beyond or config.get("peft_type") != "LORA":
        raise CheckpointError(f"{path} is no plain LoRA (type {config.get('peft_type')!r}, uses {beyond}): refused")
    names = [name for name in bank.shapes if f"{_TENSOR_PREFIX}{name}.lora_A.weight" in tensors]
    pairs = {name: _pair(path, tensors, name, rank, bank) for name in names}
    if 2 * len(pairs) != len(tensors) or not pairs:
        raise CheckpointError(
            f"{path} holds {len(tensors)} tensors, {2 * len(pairs)} of them fit the model: "
            "was it made for another base?"
        )
    targets = tuple(sorted({name.rpartition(".")[2] for name in pairs}))
    return AdapterWeights(LoraOptions(rank=rank, alpha=alpha, targets=targets), pairs)


def _pair(
    path: Path | str, tensors: dict[str, torch.Tensor], name: str, rank: int, bank: AdapterBank
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, outputs = bank.shapes[name]
    wanted = {"lora_A": (rank, inputs), "lora_B": (outputs, rank)}
    pair = []
    for part, shape in wanted.items():
        tensor = tensors.get(f"{_TENSOR_PREFIX}{name}.{part}.weight")
        if tensor is None or tuple(tensor.shape) != shape:
            have = None if tensor is None else tuple(tensor.shape)
            raise CheckpointError(f"{path}: {name}.{part} has shape {have}, the model needs {shape}")
        if not tensor.is_floating_point():  # what is cast silently is another number
            raise CheckpointError(f"{path}: {name}.{part} holds {tensor.dtype}, weights are floating-point numbers")
        pair.append(tensor.to(bank.device, torch.float32))
    return pair[0], pair[1]


class VersionFiles:
    """One directory per version in a folder of this process; gone with it.

    Args:
        shared: where the folder is made, readable by all who can read that; None: in memory, for this user alone.
    """

    def __init__(self, shared: Path | None = None) -> None:
        self._shared = shared
        self._folder: Path | None = None

    def write(self, name: str, files: Mapping[str, bytes]) -> Path:
        """A new directory, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        if self._folder is None:
            where = self._shared or _roomy(sum(len(content) for content in files.values()))
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-", dir=where)).resolve()
            if self._shared is not None:
                self._folder.chmod(0o755)
            weakref.finalize(self, _delete_as, os.getpid(), self._folder)
        path = self._folder / name
        write_directory_atomic(path, files)
        return path

    def close(self) -> None:
        """Delete everything."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _delete_as(owner: int, folder: Path) -> None:
    """Delete a folder, but not in a fork of the process that has it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _roomy(size: int) -> Path | None:
    """Memory if a hundred versions of this size fit into it, else None; folders of dead processes are removed there."""
    if not os.access(_MEMORY, os.W_OK):
        return None
    for folder in _MEMORY.glob(f"{_FOLDER_PREFIX}*"):
        process = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(folder, ignore_errors=True)
    return _MEMORY if shutil.disk_usage(_MEMORY).free > 100 * size else None


class HeldVersionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A process is to hold this adapter version, whose files come with the order; `digest`: theirs."""

    ref: AdapterRef
    digest: str


def packed_files(weights: AdapterWeights, origin: Origin) -> tuple[str, bytes]:
    """The digest of an adapter's files, and the files as bytes."""
    files = to_files(weights, origin)
    return digest_of(files), msgspec.msgpack.encode(files)


def received_files(order: HeldVersionOrder, content: bytes) -> dict[str, bytes]:
    """The files of an order.

    Raises:
        EngineError: they came damaged.
    """
    files = msgspec.msgpack.decode(content, type=dict[str, bytes])
    if digest_of(files) != order.digest:
        raise EngineError(f"adapter {order.ref} came damaged: its digest is another one")
    return files


def received_weights(order: HeldVersionOrder, content: bytes, bank: AdapterBank) -> AdapterWeights:
    """The weights of an order.

    Raises:
        EngineError: as `received_files`. CheckpointError: they are of another base.
    """
    return from_files(received_files(order, content), bank, f"adapter {order.ref}")
