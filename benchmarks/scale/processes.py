"""The processes of a cluster: how long they take to start, and what memory they have."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import benchmarks
from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.options import ClusterOptions
from mas.core.concurrency import together
from mas.core.errors import RunError

_LIMIT_S = 600.0
"""Of the start of a worker beside others, on a machine that is busy."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Workers of one kind. `first_s`: seconds until the first was there; `rest_s`: until the others were, which were
    started at once, together; 0: there are none.
    """

    handles: Sequence[Handle]
    first_s: float
    rest_s: float

    def measures(self, cluster: Cluster) -> dict[str, float]:
        """Seconds, and memory of a process at its last heartbeat, median over workers."""
        names = {handle.name for handle in self.handles}
        rss = [one.rss_bytes for one in cluster.members() if one.name in names and one.rss_bytes is not None]
        found = {"first_s": self.first_s}
        if len(self.handles) > 1:
            found[f"next_{len(self.handles) - 1}_s"] = self.rest_s
        return found | ({"rss_mib": median(rss) / 2**20} if rss else {})


def cluster_options(kind: str, cpus: int) -> ClusterOptions:
    """Of a cluster whose workers may take long to start."""
    return ClusterOptions.model_validate({"kind": kind, "cpus": cpus, "start_s": _LIMIT_S})


async def start(cluster: Cluster, kind: str, factory: str, arguments: bytes, count: int) -> Started:
    """Start one worker, then the others, and wait until each has said how much memory it has.

    Raises:
        ClusterError: one cannot be started.
        RunError: one says nothing of its memory.
    """
    began = time.perf_counter()
    first = await cluster.spawn(kind, factory, arguments, threads=1)
    first_s = time.perf_counter() - began
    began = time.perf_counter()
    rest = await together([cluster.spawn(kind, factory, arguments, threads=1) for _ in range(count - 1)], "spawn")
    rest_s = time.perf_counter() - began
    handles = [first, *rest]
    try:
        async with asyncio.timeout(_LIMIT_S):
            while any(handle.member().rss_bytes is None for handle in handles):  # noqa: ASYNC110 - heartbeats tell
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise RunError(f"a {kind} worker says nothing of its memory: this platform does not tell") from None
    return Started(handles=handles, first_s=first_s, rest_s=rest_s)


@contextmanager
def found_by_workers() -> Iterator[None]:
    """Have workers find this package: they get the module path of this process, which may lack it."""
    root = str(Path(benchmarks.__file__).parents[1])
    sys.path.insert(0, root)
    try:
        yield
    finally:
        sys.path.remove(root)
