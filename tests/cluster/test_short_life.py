"""One worker of each cluster is called, killed, started again and stopped. What `test_contract` holds at length takes
minutes with Ray, which only the nightly run gives it; this takes some seconds, in every run."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from cluster_cases import FACTORY, needs_ray, running, until

from mas.cluster import ClusterOptions, open_cluster
from mas.core.errors import WorkerLost

LIMIT_S = 120.0


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("kind", ["local", pytest.param("ray", marks=needs_ray)])
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of JAX, where Ray forks beside it
async def test_a_worker_is_called_killed_started_again_and_stopped(kind: str, tmp_path: Path) -> None:
    options = ClusterOptions.model_validate({"kind": kind, "cpus": 2, "start_s": 300})
    async with open_cluster(options, tmp_path) as cluster:
        worker = await cluster.spawn("worker", FACTORY, b"same")
        assert await worker.call("made_of", timeout_s=LIMIT_S) == b"same"
        killed = worker.pid or 0
        os.kill(killed, signal.SIGKILL)
        await asyncio.wait_for(worker.wait_ended(), LIMIT_S)
        with pytest.raises(WorkerLost, match="worker-0"):
            await worker.call("made_of", timeout_s=LIMIT_S)
        again = await cluster.respawn(worker)
        assert await again.call("made_of", timeout_s=LIMIT_S) == b"same"
        assert (again.name, again.restarts) == ("worker-0", 1)
        stopped = again.pid or 0
        assert stopped != killed
        await again.stop()
    assert await until(lambda: not running([killed, stopped]), 10)
