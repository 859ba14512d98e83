"""What a run left behind: its adapters, or what its roles have learned as text."""

import shlex
from pathlib import Path

from mas.config.load import load_run_config, overrides_of
from mas.config.options import AlgorithmOptions
from mas.core.errors import RunDirectoryError
from mas.serving.lora import AdapterBank
from mas.serving.peft_files import from_directory
from mas.serving.weights import AdapterWeights
from mas.training.checkpoint import checkpoint_steps, list_checkpoints, step_of, verify_checkpoint
from mas.training.experience.library import Library
from mas.training.libraries import FOLDER, read_libraries


def saved_adapters(run: Path, bank: AdapterBank, step: int | None = None) -> dict[str, AdapterWeights]:
    """Adapters of the latest checkpoint, or without checkpoints those exported at the end.

    Args:
        step: of the checkpoint instead; None: the latest.

    Raises:
        CheckpointError: the checkpoint is corrupt or was made for another base.
        RunDirectoryError: the run has not saved anything yet, or no such step (any more).
    """
    return {path.name: from_directory(path, bank) for path in adapter_directories(run, step)}


def adapter_directories(run: Path, step: int | None = None) -> list[Path]:
    """Where the adapters of a run lie, by name; arguments and errors as `saved_adapters`."""
    folder = _saved_in(run, step) / "adapters"
    found = sorted(path for path in folder.glob("*") if (path / "adapter_config.json").is_file())
    if not found:
        raise _nothing(run, "trained adapters")
    return found


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


def _saved_in(run: Path, step: int | None = None) -> Path:
    for checkpoint in reversed(list_checkpoints(run / "checkpoints")):
        if step in (None, step_of(checkpoint)):
            verify_checkpoint(checkpoint)
            return checkpoint
    if step is not None:
        kept = ", ".join(map(str, checkpoint_steps(run / "checkpoints"))) or "none"
        raise RunDirectoryError(
            f"Run directory {run} has no checkpoint of step {step}; there are: {kept}. train.keep_checkpoints says how "
            "many stay"
        )
    return run


def _nothing(run: Path, what: str) -> RunDirectoryError:
    again = shlex.join(["mas", "train", *overrides_of(load_run_config(run))])
    return RunDirectoryError(f"Run directory {run} holds no {what} yet (no checkpoint). Train on: {again}")
