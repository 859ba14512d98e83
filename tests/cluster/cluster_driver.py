"""A driver that tests kill: `python cluster_driver.py KIND LOGS` opens a cluster, spawns two workers, one with a child,
prints all their numbers in one line, and waits to be killed."""

import asyncio
import os
import sys
from pathlib import Path

from mas.cluster import ClusterOptions, open_cluster


async def main(kind: str, logs: Path) -> None:
    async with open_cluster(ClusterOptions(kind=kind, cpus=8, start_s=600), logs) as cluster:  # type: ignore[arg-type]
        handles = [await cluster.spawn("victim", "cluster_workers:make", b"") for _ in range(2)]
        await cluster.put(bytes(1000))
        child = await handles[0].call("start_child", timeout_s=300)
        busy = asyncio.create_task(handles[1].call("wait", str(logs / "busy").encode(), timeout_s=None))
        print(*(handle.pid for handle in handles), child.decode(), flush=True)
        await busy


if __name__ == "__main__":
    assert os.getpgrp() == os.getpid()
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
