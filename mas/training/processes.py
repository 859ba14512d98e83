"""The processes of a training run beside the one that trains: rollout workers and learner ranks, on one cluster."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas.cluster.registry import open_cluster
from mas.config.options import WorkerOptions
from mas.serving.model_sources import Origin
from mas.training.ranks import LearnerRanks, start_ranks
from mas.training.workers import RolloutWorkers, start_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """Those that a run has; None: it does that work itself."""

    workers: RolloutWorkers | None = None
    ranks: LearnerRanks | None = None

    def metrics(self) -> dict[str, Any]:
        """Of each kind, by its name."""
        kinds: Mapping[str, RolloutWorkers | LearnerRanks | None] = {"workers": self.workers, "learners": self.ranks}
        return {name: dict(one.metrics()) for name, one in kinds.items() if one is not None}


OpenProcesses = Callable[[], AbstractAsyncContextManager[Processes]]
"""Starts the processes of a run, and ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factories:
    """What makes a rollout worker and a learner rank, and of what; see `Cluster.spawn`."""

    worker: str
    rank: str
    arguments: bytes


@asynccontextmanager
async def open_processes(
    options: WorkerOptions, factories: Factories, *, origin: Origin, threads: int, logs: Path
) -> AsyncIterator[Processes]:
    """Start the processes that the options name, and end them with the block.

    Args:
        origin: of the base of the adapters. threads: of numeric libraries in each process.
        logs: a directory for what they print.

    Raises:
        ClusterError: they cannot be started. MissingPackage: Ray is asked for, and not installed.
    """
    async with open_cluster(options, logs) as cluster:
        workers = ranks = None
        if options.workers:
            workers = await start_workers(
                cluster, options, factories.worker, factories.arguments, origin=origin, threads=threads
            )
        if options.learners > 1:
            ranks = await start_ranks(cluster, options, factories.rank, factories.arguments, threads=threads)
        yield Processes(workers=workers, ranks=ranks)
