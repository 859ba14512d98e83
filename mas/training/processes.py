"""The processes of a run beside the one that trains, on one cluster: rollout workers, engine replicas, learners."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas.cluster.contract import open_cluster
from mas.cluster.records import ResourceRequest
from mas.cluster.resources import with_room
from mas.config.options import WorkerOptions
from mas.core.concurrency import together
from mas.serving.model import BaseModel
from mas.serving.replicated_engine import ReplicatedEngine
from mas.training.engine_processes import start_engines
from mas.training.ranks import LearnerRanks, start_ranks
from mas.training.workers import RolloutWorkers, start_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """Those that a run has; None: it does that work itself. `engine`: of all engine replicas."""

    workers: RolloutWorkers | None = None
    engine: ReplicatedEngine | None = None
    ranks: LearnerRanks | None = None

    def metrics(self) -> dict[str, Any]:
        """Of rollout workers and learner ranks, by the kind."""
        kinds: Mapping[str, RolloutWorkers | LearnerRanks | None] = {"workers": self.workers, "learners": self.ranks}
        return {name: dict(one.metrics()) for name, one in kinds.items() if one is not None}


OpenProcesses = Callable[[], AbstractAsyncContextManager[Processes]]
"""Starts the processes of a run, and ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factories:
    """What makes each kind of process, and of what; see `Cluster.spawn`.

    `environment`: names of variables that rollout workers get beside the usual ones.
    """

    worker: str
    engine: str
    rank: str
    arguments: bytes
    environment: tuple[str, ...] = ()


@asynccontextmanager
async def open_processes(
    options: WorkerOptions, factories: Factories, *, base: BaseModel, logs: Path
) -> AsyncIterator[Processes]:
    """Start the processes that the options name, side by side, once there is room for all; end them with the block.

    Args:
        base: of the process that trains; the others load the same one. logs: a directory for what they print.

    Raises:
        NoResources: the cluster has no room for all of them; none was started. ClusterError: they cannot be started.
        MissingPackage: Ray is asked for, and not installed.
    """
    arguments, threads = factories.arguments, base.options.threads
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(with_room(options, options.asked_cpus), logs))
        await cluster.reserve(_requests(options))
        workers, engine, ranks = None, None, None

        async def start_players() -> None:
            nonlocal workers, engine
            if options.workers:
                workers = await start_workers(
                    cluster,
                    options,
                    factories.worker,
                    arguments,
                    origin=base.origin,
                    threads=threads,
                    environment=factories.environment,
                )
            if options.engines:
                engine = await start_engines(cluster, options, factories.engine, arguments, base=base)
                stack.push_async_callback(engine.close)

        async def start_learners() -> None:
            nonlocal ranks
            if options.learners > 1:
                ranks = await start_ranks(cluster, options, factories.rank, arguments, base=base)
                stack.callback(ranks.end)

        await together([start_players(), start_learners()], "start")
        yield Processes(workers=workers, engine=engine, ranks=ranks)


def _requests(options: WorkerOptions) -> list[ResourceRequest]:
    """What all of them take of the cluster, by the kinds that they are spawned as."""
    counts = {"rollout": options.workers, "engine": options.engines}
    requests = [
        ResourceRequest(kind=kind, count=count, cpus=options.worker_cpus, gpus=options.worker_gpus)
        for kind, count in counts.items()
    ]
    ranks = options.learners - 1
    return [
        *requests,
        ResourceRequest(kind="learner", count=ranks, cpus=options.learner_cpus, gpus=options.learner_gpus),
    ]
