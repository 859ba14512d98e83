"""One step of training without a run directory."""

import torch

from mas.core.concurrency import run_blocking
from mas.training.base import open_base
from mas.training.saved import initial_adapters
from mas.training.setup import TrainSetup
from mas.training.trainer import Trainer
from mas.training.watch import Silent


def changed_adapters(setup: TrainSetup) -> set[str]:
    """Names of the adapters that the steps of `setup` change.

    Raises:
        MasError: as `Trainer.run`.
    """
    base = open_base(setup, lambda text: None, is_trained=True)
    before, trainer = initial_adapters(setup, base), Trainer(setup, base)
    after = run_blocking(trainer.run(Silent())).adapters
    return {
        name
        for name, weights in after.items()
        if any(
            not torch.equal(new, old) for new, old in zip(weights.parameters(), before[name].parameters(), strict=True)
        )
    }
