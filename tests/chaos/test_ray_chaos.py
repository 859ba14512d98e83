"""Processes of a training on Ray are lost: its files are those of an undisturbed run on one machine.

A node goes: it is not asked, but its raylet is killed, and with it what runs there. All workers (or replicas and a
learner rank) of a run are on it, since no other node has room for one of them. Another node joins before.

Single actors and the process that trains are killed and stopped as in `test_process_chaos`; the Ray stays.

No process lives on. Five runs of each kind, with workers and with replicas, about two minutes each.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import needs_ray, ray_nodes
from test_process_chaos import HUNG_S, PLAYERS, Life, content, disturbed, undisturbed, wait_ended

from mas.observe.metrics import read_metrics

pytestmark = [
    needs_ray,
    pytest.mark.slow,
    pytest.mark.nightly(shard=False),
    pytest.mark.timeout(1800),
]
PROCESSES = {
    "workers": ("cluster.workers=2", "cluster.worker_cpus=2"),
    "engines": ("cluster.engines=2", "cluster.worker_cpus=2", "cluster.learners=2", "cluster.learner_cpus=2"),
}
"""Of six CPUs on the node."""


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ray_nodes(monkeypatch) as made:
        yield made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> dict[str, object]:
    return undisturbed(tmp_path_factory.mktemp("whole") / "run", *small_overrides)


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("seed", range(5))
def test_a_node_that_goes_changes_nothing_of_a_training(
    nodes: Any, tmp_path: Path, kind: str, seed: int, small_overrides: tuple[str, ...]
) -> None:
    draw, run, other = random.Random(f"{kind}-{seed}"), tmp_path / "run", tmp_path / "other"
    # many steps, as a node takes seconds to join
    words = (*PROCESSES[kind], *small_overrides, "cluster.start_s=600", "train.steps=60")
    assert Life(other, *words, "cluster.cpus=6").end() == 0, (tmp_path / "other.log").read_text()
    first = nodes.add_node(num_cpus=6, node_ip_address="127.0.0.1")
    life = Life(run, *words, "cluster=ray", f"cluster.address={nodes.address}")
    life.wait_for_step(1)
    nodes.add_node(num_cpus=6, node_ip_address="127.0.0.1")
    time.sleep(draw.uniform(0.0, 1.0))
    assert life.steps() < 50, "it is nearly done"
    assert life.process.poll() is None, "it ended first"
    nodes.remove_node(first, allow_graceful=False)
    assert life.end() == 0, (tmp_path / "run.log").read_text()
    wait_ended(run)
    assert content(run) == content(other)
    restarts = [line.get(kind, {}).get("restarts", 0) for line in read_metrics(run / "metrics.jsonl")]
    assert restarts[0] == 0
    assert max(restarts) >= 2  # both were there


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_killed_or_stopped_on_a_ray_the_run_is_the_same(
    nodes: Any, tmp_path: Path, whole: dict[str, object], player: str, seed: int, small_overrides: tuple[str, ...]
) -> None:
    nodes.add_node(num_cpus=6, node_ip_address="127.0.0.1")
    where = ("cluster=ray", f"cluster.address={nodes.address}", "cluster.start_s=600", f"cluster.hung_s={HUNG_S}")
    words = (*where, "cluster.learners=2", PLAYERS[player], *small_overrides)
    assert disturbed(tmp_path / "run", player, seed, *words) == whole
