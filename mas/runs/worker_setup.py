"""What processes beside the one that trains are made of: the configuration, read again where they run."""

import os
from pathlib import Path

import msgspec

from mas.config.options import Config
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel
from mas.training.base import open_base
from mas.training.setup import TrainSetup


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is made of. `config`: as JSON; `directory`: where relative paths begin, if it is there."""

    config: str
    is_stored: bool
    directory: str


def setup_of(config: Config) -> bytes:
    """The arguments of a factory."""
    setup = WorkerSetup(config=config.model_dump_json(), is_stored=config.is_stored, directory=str(Path.cwd()))
    return msgspec.json.encode(setup)


def load_setup(arguments: bytes, *, is_trained: bool = False, rank: int | None = None) -> tuple[TrainSetup, BaseModel]:
    """The setup, checked again, and the base; see `setup_of`. `is_trained`: gradients are computed there, as by the
    learner rank `rank`.

    Raises:
        ConfigError, ModelError: as in the process that trains, where they came first.
    """
    given = msgspec.json.decode(arguments, type=WorkerSetup)
    if Path(given.directory).is_dir():
        os.chdir(given.directory)
    config = Config.model_validate_json(given.config)
    setup = resolve_training(config.as_stored() if given.is_stored else config)
    return setup, open_base(setup, print, is_trained=is_trained, rank=rank)
