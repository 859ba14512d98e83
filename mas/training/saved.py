"""The adapters that a run left behind."""

import shlex
from pathlib import Path

from mas.config.load import load_run_config, overrides_of
from mas.core.errors import RunDirectoryError
from mas.serving.lora import AdapterBank
from mas.serving.peft_files import from_directory
from mas.serving.weights import AdapterWeights
from mas.training.checkpoint import list_checkpoints, verify_checkpoint


def saved_adapters(run: Path, bank: AdapterBank) -> dict[str, AdapterWeights]:
    """Adapters of the latest checkpoint, or without checkpoints those exported at the end.

    Raises:
        CheckpointError: the checkpoint is corrupt or was made for another base.
        RunDirectoryError: the run has not saved anything yet.
    """
    folder = run / "adapters"
    for checkpoint in list_checkpoints(run / "checkpoints")[-1:]:
        verify_checkpoint(checkpoint)
        folder = checkpoint / "adapters"
    found = sorted(path for path in folder.glob("*") if (path / "adapter_config.json").is_file())
    if not found:
        again = shlex.join(["mas", "train", *overrides_of(load_run_config(run))])
        raise RunDirectoryError(f"Run directory {run} holds no trained adapters yet (no checkpoint). Train on: {again}")
    return {path.name: from_directory(path, bank) for path in found}
