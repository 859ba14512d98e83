"""The adapters that training starts from."""

from mas.core.seeds import derive_seed
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.saved import adapters_from_run
from mas.training.setup import Setup


def new_adapters(base: BaseModel, names: set[str], seed: int) -> dict[str, AdapterWeights]:
    """Fresh adapters that change nothing yet."""
    return {
        name: base.bank.create(base.options.lora_of(name), derive_seed("adapter", seed, name)) for name in sorted(names)
    }


def initial_adapters(setup: Setup, base: BaseModel) -> dict[str, AdapterWeights]:
    """The adapters that training starts from: they change nothing yet, or are those of `train.start`.

    Raises:
        ConfigError, RunDirectoryError, CheckpointError: see `adapters_from_run`.
    """
    fresh = new_adapters(base, set(setup.trained_adapters.values()), setup.train.seed)
    return fresh if setup.train.start is None else adapters_from_run(fresh, setup.train.start, base)
