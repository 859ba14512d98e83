"""What the tests of clusters share: which implementations are here, and what is seen of processes."""

import asyncio
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mas.cluster import ResourceRequest

FACTORY = "cluster_workers:make"
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'mas[ray]'"
)
KINDS = ["local", pytest.param("ray", marks=[needs_ray, pytest.mark.nightly(shard=False)])]
"""Ray takes seconds to start on an idle machine, and much longer beside other work."""


def asking(count: int, cpus: float = 1, gpus: float = 0, kind: str = "rollout") -> ResourceRequest:
    return ResourceRequest(kind=kind, count=count, cpus=cpus, gpus=gpus)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def running(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if is_running(pid)]


async def until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Whether something holds within a time."""
    try:
        async with asyncio.timeout(limit_s):
            while not holds():  # noqa: ASYNC110 - another process makes it hold
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    return holds()


def processes() -> dict[int, list[str]]:
    """The words of every process's command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(path.parent.name)] = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
    return found


def processes_with(text: str) -> list[int]:
    """Processes whose command line has a text."""
    return [pid for pid, words in processes().items() if any(text in word for word in words)]


def directory_of(driver: int) -> Path:
    """The directory that a driver's guard is to remove: of objects, or of all that Ray has."""
    (directory,) = [
        Path(words[-2])
        for pid, words in processes().items()
        if any(word.endswith("/mas/cluster/guard.py") for word in words) and parent_of(pid) == driver
    ]
    return directory


def parent_of(pid: int) -> int | None:
    """The process that started one; None: it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


@contextmanager
def ray_nodes(patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Ray's `Cluster` with a head of one CPU that is to stay, and no other node yet. What joins it finds the modules of
    this process, and its token in the environment."""
    patch.setenv("RAY_AUTH_MODE", "token")
    from mas.cluster.ray_start import ray_variables  # Ray may be missing

    for name, value in ray_variables(None, {}).items():
        patch.setenv(name, value)
    from ray._raylet import AuthenticationTokenLoader, Config
    from ray.cluster_utils import Cluster

    Config.initialize("")  # what Ray has read when another test imported it
    AuthenticationTokenLoader.instance().reset_cache()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    head = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield made
    finally:
        made.shutdown()
