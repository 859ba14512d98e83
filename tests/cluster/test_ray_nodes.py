"""Ray with two nodes on this machine: where it listens, and what is left when a node goes."""

import asyncio
import ipaddress
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import FACTORY, directory_of, needs_ray, processes_with, ray_nodes, until

from mas.cluster import ClusterOptions, open_cluster
from mas.core.errors import ClusterError, NoResources, WorkerLost

pytestmark = [needs_ray, pytest.mark.nightly(shard=False), pytest.mark.slow, pytest.mark.timeout(1800)]


def listening(directory: Path) -> set[str]:
    """Addresses that processes of a Ray listen at."""
    pids = {str(pid) for pid in processes_with(str(directory))}
    table = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in table.splitlines() if pids & set(re.findall(r"pid=(\d+)", line))]
    return {line.split()[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:") for line in lines}


async def test_a_ray_that_is_started_here_listens_on_loopback_only_and_wants_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mas.cluster.ray_link import RayLink

    connect, hosts = RayLink._connect, list[str]()

    async def looking(link: RayLink, placed: Any) -> Any:
        table = await asyncio.to_thread(subprocess.run, ["ss", "-Hltn"], capture_output=True, text=True, check=True)
        (line,) = [line for line in table.stdout.splitlines() if line.split()[3].endswith(f":{placed.port}")]
        hosts.append(line.split()[3].rpartition(":")[0])
        return await connect(link, placed)

    monkeypatch.setattr(RayLink, "_connect", looking)
    async with open_cluster(ClusterOptions(kind="ray", cpus=2, start_s=600), tmp_path) as cluster:
        await cluster.spawn("worker", FACTORY)
        assert hosts == ["127.0.0.1"]
        addresses = listening(directory_of(os.getpid()))
        assert addresses
        assert all(ipaddress.ip_address(address).is_loopback for address in addresses), addresses
        assert os.environ["RAY_AUTH_MODE"] == "token"
        with pytest.raises(ClusterError, match=r"this process is a driver of Ray already"):
            async with open_cluster(ClusterOptions(kind="ray"), tmp_path):
                pass
    assert "RAY_AUTH_TOKEN" not in os.environ


async def test_nobody_at_the_address_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no Ray listens at 127\.0\.0\.1:9 .*: start one there"):
        async with open_cluster(ClusterOptions(kind="ray", address="127.0.0.1:9", start_s=60), tmp_path):
            pass


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ray_nodes(monkeypatch) as made:
        yield made


async def test_named_variables_reach_the_workers_of_a_ray_that_was_joined(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was started before the driver had them."""
    monkeypatch.setenv("JUDGE_KEY", "of the driver")
    options = ClusterOptions(kind="ray", address=nodes.address, start_s=600, environment=("JUDGE_KEY",))
    async with open_cluster(options, tmp_path) as cluster:
        handle = await cluster.spawn("worker", FACTORY)
        assert json.loads(await handle.call("environment", timeout_s=120))["JUDGE_KEY"] == "of the driver"


async def test_a_node_that_goes_takes_its_worker_which_starts_again_elsewhere(nodes: Any, tmp_path: Path) -> None:
    second = nodes.add_node(num_cpus=4, node_ip_address="127.0.0.1")
    options = ClusterOptions(kind="ray", address=nodes.address, start_s=600, hung_s=60)
    async with open_cluster(options, tmp_path) as cluster:
        handle = await cluster.spawn("worker", FACTORY, b"same", cpus=3)
        call = asyncio.create_task(handle.call("wait", str(tmp_path / "begun").encode(), timeout_s=None))
        assert await until((tmp_path / "begun").exists, 120)
        nodes.remove_node(second, allow_graceful=False)
        with pytest.raises(WorkerLost, match=r"its process is gone"):
            await asyncio.wait_for(call, 120)
        assert not handle.alive
        assert await until(lambda: sum(node["Alive"] for node in nodes.global_state.node_table()) == 1, 120)
        with pytest.raises(NoResources, match=r"asks for 3 CPUs and 0 GPUs on one node; the nodes have 1 CPUs"):
            await cluster.respawn(handle)
        nodes.add_node(num_cpus=4, node_ip_address="127.0.0.1")
        again = await cluster.respawn(handle)
        assert await again.call("made_of", timeout_s=120) == b"same"
        assert (again.restarts, again.member().node == handle.member().node) == (1, False)
