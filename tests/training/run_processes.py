"""The processes of a training, as `mas train` starts them."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from mas.config.options import Config
from mas.runs import engine_worker, learner_rank, rollout_worker
from mas.runs.worker_setup import setup_of
from mas.serving.model import BaseModel
from mas.training.processes import Factories, Processes, open_processes


def started(config: Config, base: BaseModel, logs: Path) -> AbstractAsyncContextManager[Processes]:
    """Those that `cluster` names; they leave what they print in `logs`."""
    factories = Factories(
        worker=rollout_worker.FACTORY,
        engine=engine_worker.FACTORY,
        rank=learner_rank.FACTORY,
        arguments=setup_of(config),
    )
    return open_processes(config.cluster, factories, base=base, logs=logs)
