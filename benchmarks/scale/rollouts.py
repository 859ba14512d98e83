"""What is played: the steps of a training in this process or by one worker, and orders by several workers."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.core.concurrency import together
from mas.core.errors import RunError
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.runtime.team import TeamRuntime
from mas.serving.model_sources import Origin
from mas.training.rollout import Rollout
from mas.training.tasks.plan import TaskOrder
from mas.training.workers import RolloutWorkers

ONE_PROCESS, ONE_WORKER = "one process", "one worker"
STEPS, ORDERS, PROCESSES = "tasks of steps", "orders", "processes"
"""What is counted as work, or only there."""
_ORIGIN = Origin(name="no base: no adapters are held")


class WorkerCpu:
    """CPU time of workers' processes, all threads together; of this machine and where /proc tells."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self._handles = handles

    def seconds(self) -> float:
        """Since they were started."""
        return sum(self._ticks(handle.pid) for handle in self._handles) / os.sysconf("SC_CLK_TCK")

    def _ticks(self, pid: int | None) -> int:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        return int(words[11]) + int(words[12])


def workers_of(cluster: Cluster, handles: Sequence[Handle], count: int) -> RolloutWorkers:
    """The first of a cluster's workers, as training sees them."""
    return RolloutWorkers(cluster, handles[:count], _ORIGIN)


class Steps:
    """The rollouts of training steps, one after the other, as `mas train` has them: all tasks of a step at once.

    Args:
        workers: play them; None: this process does. cpu: of these workers.

    Attributes:
        cpu_ms: of each round, CPU milliseconds of the workers per task.
    """

    def __init__(
        self,
        name: str,
        rollout: Rollout,
        runtime: TeamRuntime,
        steps: int,
        workers: RolloutWorkers | None = None,
        cpu: WorkerCpu | None = None,
    ) -> None:
        self.name, self._cpu = name, cpu or WorkerCpu(())
        self.cpu_ms: list[float] = []
        self._rollout, self._runtime, self._steps, self._workers = rollout, runtime, steps, workers

    async def run(self, number: int) -> int:
        """Play the steps of round `number`; how many tasks they had."""
        self._rollout.player = self._workers
        tasks, began_s = 0, self._cpu.seconds()
        for step in range(number * self._steps, (number + 1) * self._steps):
            batch = self._rollout.draw(step, ())
            for episodes in await self._rollout.play(self._runtime, batch):
                check(episodes)
                tasks += 1
        self.cpu_ms.append((self._cpu.seconds() - began_s) / tasks * 1e3)
        return tasks


class Orders:
    """Orders by a number of workers, of which each has one at a time."""

    def __init__(self, name: str, rollout: Rollout, workers: RolloutWorkers, orders: int) -> None:
        self.name = name
        self._rollout, self._workers, self._orders = rollout, workers, orders

    async def run(self, number: int) -> int:
        """Play so many orders for each worker; how many that were."""
        count = self._orders * self._workers.count
        orders = islice(orders_of(self._rollout, number), count)
        await together([self._slot(orders) for _ in range(self._workers.count)], "slot")
        return count

    async def _slot(self, orders: Iterator[TaskOrder]) -> None:
        for order in orders:
            check(await self._workers.play(order))


def orders_of(rollout: Rollout, number: int) -> Iterator[TaskOrder]:
    """Orders without end, others for each `number`."""
    step = 0
    while True:
        for index, planned in enumerate(rollout.draw(derive_seed("scale", number, step), ()).planned):
            yield TaskOrder(step=step, pick=planned.pick, seed=derive_seed("scale", number, step, index), speaking={})
        step += 1


def check(episodes: Sequence[Episode]) -> None:
    """Refuse what voids the measurement.

    Raises:
        RunError: nothing was recorded.
    """
    for episode in episodes:
        if episode.status != "done" or not episode.turns:
            raise RunError(f"task {episode.task} recorded nothing: {episode.cause}")
