"""CPUs and GPUs that are held for all workers before the first one starts."""

import os
import signal
from pathlib import Path

import pytest
from cluster_cases import FACTORY, KINDS, asking

from mas.cluster import ClusterOptions, open_cluster
from mas.core.errors import ClusterError, ConfigError, NoResources

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("kind", KINDS)
async def test_workers_are_started_where_there_is_room_for_all_of_them(kind: str, tmp_path: Path) -> None:
    options = ClusterOptions.model_validate({"kind": kind, "cpus": 4, "start_s": 600})
    async with open_cluster(options, tmp_path) as cluster:
        message = r"\(3 rollout of 1 CPUs and 0 GPUs and 1 learner of 2 .*\) ask for 5 CPUs and 0 GPUs together.*4 "
        with pytest.raises(NoResources, match=message):
            await cluster.reserve([asking(3), asking(1, 2, kind="learner"), asking(0, 99, 99, kind="engine")])
        assert cluster.members() == [], "none was started"
        with pytest.raises(ConfigError, match=r"gpus=1\.5 is not possible"):
            await cluster.reserve([asking(1, gpus=1.5)])
        with pytest.raises(ConfigError, match=r"use one request for each kind"):
            await cluster.reserve([asking(1), asking(1)])
        await cluster.reserve([asking(2), asking(1, 2, kind="learner"), asking(3, 0, kind="idle")])
        with pytest.raises(ConfigError, match=r"rollout-0 asks for 2 CPUs and 0 GPUs, and 1 and 0 were reserved"):
            await cluster.spawn("rollout", FACTORY, cpus=2)
        first = await cluster.spawn("learner", FACTORY, cpus=2)
        os.kill(first.pid or 0, signal.SIGKILL)
        again = await cluster.respawn(first)  # there is room in what is reserved only
        assert (again.name, again.restarts, again.alive) == ("learner-0", 1, True)
        assert (await cluster.spawn("rollout", FACTORY)).alive
        assert (await cluster.spawn("idle", FACTORY, cpus=0)).alive
        with pytest.raises(ClusterError, match=r"reserved once, before the first worker is started"):
            await cluster.reserve([asking(1, kind="engine")])
    with pytest.raises(ClusterError, match=r"nothing can be reserved: the cluster is closed"):
        await cluster.reserve([asking(1)])
