"""What is reserved on a Ray that is joined: a placement group, which takes what is asked for and outlives a node."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import FACTORY, asking, needs_ray, ray_nodes, until

from mas.cluster import Cluster, ClusterOptions, open_cluster
from mas.core.errors import CallFailed, NoResources

pytestmark = [needs_ray, pytest.mark.nightly(shard=False), pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head of one CPU, and a node of four."""
    with ray_nodes(monkeypatch) as made:
        made.add_node(num_cpus=4, node_ip_address="127.0.0.1")
        yield made


def joined(nodes: Any, logs: Path, **more: Any) -> Cluster:
    options = {"kind": "ray", "address": nodes.address, "start_s": 600}
    return open_cluster(ClusterOptions.model_validate(options | more), logs)


def wait_less(cluster: Cluster, start_s: float) -> None:
    cluster.options = cluster.options.model_copy(update={"start_s": start_s})


async def fail_to_start(cluster: Cluster) -> None:
    async with cluster:
        await cluster.reserve([asking(2, 2)])
        await cluster.spawn("rollout", "cluster_workers:make_none", cpus=2)


def free_cpus() -> float:
    import ray  # it may be missing

    return float(ray.available_resources().get("CPU", 0))


async def test_a_ray_that_is_joined_is_left_all_but_what_is_asked_for(nodes: Any, tmp_path: Path) -> None:
    async with joined(nodes, tmp_path) as cluster:
        wait_less(cluster, 4)
        message = r"ask for 2 CPUs and 2 GPUs together, and after 2 s on all nodes .* 0 of 0 GPUs are free"
        with pytest.raises(NoResources, match=message):  # a node with GPUs might have come
            await cluster.reserve([asking(2, gpus=1)])
        message = (
            r"ask for 6 CPUs and 0 GPUs together, and after 2 s on all nodes 5 of 5 CPUs are free .* none was started"
        )
        with pytest.raises(NoResources, match=message):
            await cluster.reserve([asking(6)])
        wait_less(cluster, 600)
        assert cluster.members() == []
        assert await until(lambda: free_cpus() == 5, 60), "nothing is held"
        await cluster.reserve([asking(2, 2)])
        assert await until(lambda: free_cpus() == 1, 60)
        workers = [await cluster.spawn("rollout", FACTORY, cpus=2) for _ in range(2)]
        await cluster.spawn("other", FACTORY, cpus=1)
        assert await until(lambda: free_cpus() == 0, 60)
        os.kill(workers[0].pid or 0, signal.SIGKILL)
        again = await cluster.respawn(workers[0])  # in its bundle: nothing else is free
        assert (again.alive, again.member().node) == (True, workers[1].member().node)
    async with joined(nodes, tmp_path):
        assert await until(lambda: free_cpus() == 5, 60), "closing gave it back"
    with pytest.raises(CallFailed, match=r"nothing to make"):
        await fail_to_start(joined(nodes, tmp_path))
    async with joined(nodes, tmp_path):
        assert await until(lambda: free_cpus() == 5, 60), "a start that failed gave it back"


@pytest.mark.parametrize(("strategy", "machines"), [(None, 1), ("pack", 1), ("spread", 2)])
async def test_workers_are_packed_on_few_nodes_or_spread_over_many(
    nodes: Any, tmp_path: Path, strategy: str | None, machines: int
) -> None:
    async with joined(nodes, tmp_path, strategy=strategy) as cluster:
        await cluster.reserve([asking(2)])
        workers = [await cluster.spawn("rollout", FACTORY) for _ in range(2)]
        assert len({worker.member().node for worker in workers}) == machines


async def test_what_was_reserved_on_a_node_that_goes_is_waited_for_on_others(nodes: Any, tmp_path: Path) -> None:
    (second,) = nodes.worker_nodes
    async with joined(nodes, tmp_path) as cluster:
        await cluster.reserve([asking(1, 3)])
        worker = await cluster.spawn("rollout", FACTORY, b"same", cpus=3)
        nodes.add_node(num_cpus=4, node_ip_address="127.0.0.1")
        other = await cluster.spawn("other", FACTORY, cpus=3)
        nodes.remove_node(second, allow_graceful=False)
        assert await until(lambda: sum(node["Alive"] for node in nodes.global_state.node_table()) == 2, 120)
        wait_less(cluster, 10)
        message = r"3 CPUs and 0 GPUs that were reserved for it went with a node, and after 5 s no other node has room"
        with pytest.raises(NoResources, match=message):
            await cluster.respawn(worker)
        wait_less(cluster, 600)
        await other.stop()
        again = await cluster.respawn(worker)
        assert await again.call("made_of", timeout_s=120) == b"same"
        assert again.member().node == other.member().node
