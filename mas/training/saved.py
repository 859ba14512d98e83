"""What a run left behind: its adapters, or what its roles have learned as text."""

import shlex
from pathlib import Path

from mas.config.load import load_run_config, overrides_of
from mas.config.options import AlgorithmOptions
from mas.core.errors import RunDirectoryError
from mas.serving.lora import AdapterBank
from mas.serving.peft_files import from_directory
from mas.serving.weights import AdapterWeights
from mas.training.checkpoint import list_checkpoints, verify_checkpoint
from mas.training.experience.library import Library
from mas.training.libraries import FOLDER, read_libraries


def saved_adapters(run: Path, bank: AdapterBank) -> dict[str, AdapterWeights]:
    """Adapters of the latest checkpoint, or without checkpoints those exported at the end.

    Raises:
        CheckpointError: the checkpoint is corrupt or was made for another base.
        RunDirectoryError: the run has not saved anything yet.
    """
    folder = _saved_in(run) / "adapters"
    found = sorted(path for path in folder.glob("*") if (path / "adapter_config.json").is_file())
    if not found:
        raise _nothing(run, "trained adapters")
    return {path.name: from_directory(path, bank) for path in found}


def saved_libraries(run: Path) -> dict[str, Library]:
    """Role -> library of the latest checkpoint, or without checkpoints of those exported at the end.

    Raises:
        CheckpointError: the checkpoint or a library is corrupt.
        RunDirectoryError: the run has not saved anything yet.
    """
    found = read_libraries(_saved_in(run) / FOLDER)
    if not found:
        raise _nothing(run, "experiences")
    return found


def saved_experiences(run: Path | None, algorithm: AlgorithmOptions) -> dict[str, tuple[str, ...]]:
    """Role -> what it has learned as text in a run; nothing without a run, or where adapters are trained.

    Raises:
        CheckpointError, RunDirectoryError: as `saved_libraries`.
    """
    if run is None or not algorithm.is_training_free:
        return {}
    return {role: library.experiences for role, library in saved_libraries(run).items()}


def _saved_in(run: Path) -> Path:
    for checkpoint in list_checkpoints(run / "checkpoints")[-1:]:
        verify_checkpoint(checkpoint)
        return checkpoint
    return run


def _nothing(run: Path, what: str) -> RunDirectoryError:
    again = shlex.join(["mas", "train", *overrides_of(load_run_config(run))])
    return RunDirectoryError(f"Run directory {run} holds no {what} yet (no checkpoint). Train on: {again}")
