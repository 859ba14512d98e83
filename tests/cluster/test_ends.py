"""No process outlives its driver, whether it closes its cluster or is killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from cluster_cases import FACTORY, KINDS, directory_of, processes_with, running, until

from mas.cluster import ClusterOptions, open_cluster
from mas.core.errors import ClusterError, WorkerLost

pytestmark = pytest.mark.timeout(1200)
DRIVER = Path(__file__).with_name("cluster_driver.py")


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_leaves_no_process_and_no_directory(kind: str, tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "RAY_CLIENT_MODE"}
    async with open_cluster(
        ClusterOptions.model_validate({"kind": kind, "cpus": 8, "start_s": 600}), tmp_path / "logs"
    ) as cluster:
        handles = [await cluster.spawn("worker", FACTORY) for _ in range(2)]
        child = int(await handles[0].call("start_child", timeout_s=300))
        await cluster.put(bytes(1000))
        directory = directory_of(os.getpid())
        assert directory.stat().st_mode & 0o777 == 0o700
        waiting = asyncio.create_task(handles[1].call("wait", str(tmp_path / "begun").encode(), timeout_s=None))
        assert await until((tmp_path / "begun").exists, 60)
    with pytest.raises(WorkerLost, match=r"it was stopped"):
        await waiting
    assert running([child, *(handle.pid or 0 for handle in handles)]) == []
    assert not directory.exists()
    assert processes_with(str(directory)) == []
    importing = {"RAY_CLIENT_MODE"}  # Ray sets it when it is imported
    assert {name: os.environ[name] for name in os.environ.keys() - importing} == variables
    with pytest.raises(ClusterError, match=r"the cluster is closed"):
        await cluster.spawn("worker", FACTORY)
    await cluster.close()
    with pytest.raises(ClusterError, match=r"is entered once"):
        await cluster.__aenter__()


@pytest.mark.parametrize("kind", KINDS)
async def test_workers_of_a_driver_that_was_killed_end_by_themselves(kind: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(DRIVER.parent), *filter(None, sys.path)])
    driver = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DRIVER),
        kind,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
    assert driver.stdout is not None
    pids = [int(word) for word in (await asyncio.wait_for(driver.stdout.readline(), 600)).split()]
    directory = directory_of(driver.pid)
    services = processes_with(str(directory))
    assert len(running(pids)) == 3
    driver.kill()
    await driver.wait()
    try:
        assert await until(lambda: not running([*pids, *services]), 30)
        assert await until(lambda: not directory.exists(), 30)
    finally:
        for pid in running(pids):
            os.kill(pid, signal.SIGKILL)
