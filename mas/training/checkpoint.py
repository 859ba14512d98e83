"""Checkpoints: all that the next step depends on, in one directory that appears whole or not at all.

A checkpoint holds every adapter as a PEFT directory, and its moving average if there is one, the optimisers' states,
the update's tensors if it has any, `state.json`, and `manifest.json` with a SHA-256 per file. There is no random state
to keep: every draw is derived from the run's seed and the step.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import safetensors
import safetensors.torch
from torch import Tensor

from mas.core.errors import CheckpointError
from mas.core.records import Cost
from mas.observe.files import delete_directory, is_relative, write_directory_atomic
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_files import from_directory, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.training.learner import Learner
from mas.training.optimiser import optimiser_tensors, restore_optimiser

_MANIFEST = "manifest.json"
_UPDATE = "update.safetensors"
_NAME = re.compile(r"step-[0-9]{6,}")
NO_FILES: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: steps done, what sampling has cost, how often adapters were updated, each adapter's served
    version, the success of the last greedy evaluation (None before the first), and the states of its task source and of
    its update (empty: it has none)."""

    step: int
    cost: Cost
    optimiser_steps: int
    versions: Mapping[str, int]
    success: float | None = None
    tasks: Mapping[str, Any] = field(default_factory=dict)
    update: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Spent on sampling, with the prompt of every call."""
        return self.cost.tokens()


def save_checkpoint(
    directory: Path,
    learner: Learner | None,
    progress: Progress,
    keep: int,
    tensors: Mapping[str, Tensor] = MappingProxyType({}),
    more: Mapping[str, bytes] = NO_FILES,
) -> Path:
    """Write `directory/step-NNNNNN` and delete all but the `keep` latest.

    Args:
        learner: whose adapters are trained; None: no adapter is.
        tensors: of the update, if it has any.
        more: further files, relative names to contents.
    """
    files = dict(more)
    if learner is not None:
        files |= _learner_files(learner)
    if tensors:
        files[_UPDATE] = safetensors.torch.save(dict(tensors))
    files["state.json"] = json.dumps(msgspec.to_builtins(progress, enc_hook=dict), indent=1).encode()
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[_MANIFEST] = json.dumps(sums, indent=1).encode()
    target = directory / f"step-{progress.step:06d}"
    write_directory_atomic(target, files)
    for old in list_checkpoints(directory)[:-keep]:
        delete_directory(old)
    return target


def _learner_files(learner: Learner) -> dict[str, bytes]:
    files = {}
    for name, weights in learner.adapters.items():
        for file, content in to_files(weights, learner.base.origin).items():
            files[f"adapters/{name}/{file}"] = content
        state_of = optimiser_tensors(learner.optimisers[name], weights.parameters())
        files[f"optimisers/{name}.safetensors"] = safetensors.torch.save(state_of)
    for name, weights in learner.references.items():
        for file, content in to_files(weights, learner.base.origin).items():
            files[f"references/{name}/{file}"] = content
    return files


def list_checkpoints(directory: Path) -> list[Path]:
    """All complete checkpoints, oldest first; other names, such as those of copies that somebody made, are left out."""
    found = [path for path in directory.glob("step-*") if _NAME.fullmatch(path.name) and (path / _MANIFEST).is_file()]
    return sorted(found, key=step_of)  # names have six digits or more


def step_of(checkpoint: Path) -> int:
    """How many steps were done when it was saved."""
    return int(checkpoint.name.removeprefix("step-"))


def checkpoint_steps(directory: Path) -> list[int]:
    """Of all complete checkpoints, oldest first."""
    return [step_of(path) for path in list_checkpoints(directory)]


def verify_checkpoint(path: Path) -> Progress:
    """Check every file against the manifest and return where the run stood.

    Raises:
        CheckpointError: a file is missing or does not hold what was written, or the checkpoint was deleted meanwhile.
    """
    try:
        sums = json.loads((path / _MANIFEST).read_text())
        for name, wanted in sums.items():
            if not is_relative(name):
                raise CheckpointError(f"checkpoint {path} is corrupt: its manifest names {name!r}, outside of it")
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != wanted:
                raise CheckpointError(f"checkpoint {path} is corrupt: {name} is not what was written; {_advice(path)}")
        return msgspec.convert(json.loads((path / "state.json").read_text()), Progress)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        if not path.exists():
            gone = "is gone: a run that trains keeps only its newest checkpoints; do it again to read the newest one"
            raise CheckpointError(f"checkpoint {path} {gone}") from error
        raise CheckpointError(f"checkpoint {path} is corrupt: {error}; {_advice(path)}") from error


def _advice(corrupt: Path) -> str:
    """How to go on beside a corrupt checkpoint."""
    before = [path for path in list_checkpoints(corrupt.parent) if step_of(path) < step_of(corrupt)]
    whole = next((step_of(path) for path in reversed(before) if _is_whole(path)), None)
    if whole is None:
        return "there is no whole one before it: restore it from a copy, or train anew in another run_dir"
    return f"`mas train` with the run's options and --from {whole} goes on from the checkpoint before it"


def _is_whole(path: Path) -> bool:
    try:
        verify_checkpoint(path)
    except CheckpointError:
        return False
    return True


def checkpoint_at(directory: Path, step: int) -> Path:
    """The complete checkpoint of a step.

    Raises:
        CheckpointError: there is none of that step.
    """
    checkpoints = {step_of(path): path for path in list_checkpoints(directory)}
    if step not in checkpoints:
        there = ", ".join(map(str, checkpoints)) or "none"
        raise CheckpointError(f"{directory} has no checkpoint of step {step}; there are: {there}")
    return checkpoints[step]


def go_back(directory: Path, step: int) -> list[int]:
    """Delete the checkpoints after the one of a step, which must be whole; their steps.

    Raises:
        CheckpointError: there is none of that step, or it is corrupt.
    """
    verify_checkpoint(checkpoint_at(directory, step))
    later = [path for path in list_checkpoints(directory) if step_of(path) > step]
    for path in reversed(later):
        delete_directory(path)
    return [step_of(path) for path in later]


def load_checkpoint(path: Path, learner: Learner) -> Progress:
    """Put a checkpoint's adapters and optimiser states into the learner.

    Raises:
        CheckpointError: corrupt, or made with other adapters.
    """
    progress = verify_checkpoint(path)
    if set(progress.versions) != set(learner.adapters):
        raise CheckpointError(
            f"checkpoint {path} holds adapters {sorted(progress.versions)}, the run has {sorted(learner.adapters)}"
        )
    for name, weights in learner.references.items():
        _load_adapter(path / "references" / name, path, name, weights, learner.base.bank)
    for name, weights in learner.adapters.items():
        _load_adapter(path / "adapters" / name, path, name, weights, learner.base.bank)
        state = _load_tensors(path / "optimisers" / f"{name}.safetensors")
        restore_optimiser(learner.optimisers[name], weights.parameters(), state)
    return progress


def _load_adapter(directory: Path, path: Path, name: str, weights: AdapterWeights, bank: AdapterBank) -> None:
    loaded = from_directory(directory, bank)
    _check_same_shape(path, name, weights, loaded)
    weights.approach(loaded, 1)


def update_tensors(path: Path) -> dict[str, Tensor]:
    """What the update of the run keeps in a checkpoint beside `Progress.update`; empty: it keeps no tensors.

    Raises:
        CheckpointError: the file cannot be read.
    """
    return _load_tensors(path / _UPDATE) if (path / _UPDATE).is_file() else {}


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"tensors {path} cannot be read: {error}") from error


def _check_same_shape(path: Path, name: str, mine: AdapterWeights, other: AdapterWeights) -> None:
    have, wanted = ((w.options.rank, w.options.alpha, sorted(w.pairs)) for w in (other, mine))
    if have != wanted:
        raise CheckpointError(
            f"checkpoint {path}: adapter {name!r} has rank {have[0]} and alpha {have[1]} on {len(have[2])} layers, the "
            f"run has {wanted[0]} and {wanted[1]} on {len(wanted[2])}; go on with model.lora as it was"
        )
