"""What the tests of clusters share: which implementations are here, and what is seen of processes."""

import asyncio
import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

FACTORY = "cluster_workers:make"
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'mas[ray]'"
)
KINDS = ["local", pytest.param("ray", marks=needs_ray)]


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


def processes_with(text: str) -> list[int]:
    """Processes whose command line has a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
