"""vLLM in the processes of a cluster: each rollout worker and each engine replica starts one, and any may die."""

import gc
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import until
from conftest import BaseFor
from run_processes import started
from test_in_flight import Steps
from test_workers import is_alive
from vllm_server import SHORT, WIDE

from mas.cluster.handle import Handle
from mas.config.load import load_config
from mas.config.options import Config
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel
from mas.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.nightly(shard=False),  # three starts of vLLM each
    pytest.mark.timeout(3000),
    pytest.mark.filterwarnings("default"),  # vLLM and what it imports warn of many things
]


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", WIDE)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """vLLM leaves its sockets' contexts to the collector, which warns of them."""
    yield
    gc.collect()


def config_of(*words: str) -> Config:
    usual = ["scenario=relay", "engine=vllm", "engine.adapters=5", "train.steps=2", "train.eval_first=false", *SHORT]
    patient = ["cluster.start_s=1500", "cluster.hung_s=900"]  # of a busy machine
    return load_config([*usual, *patient, *words]).model_copy(update={"model": WIDE})


@dataclass
class Killing:
    """Kills the process that gets the first call of a method after step 1, or its vLLM, while it answers.

    Attributes:
        processes: those that were called, and what they had started; of vLLM each has one.
    """

    method: str
    steps: Steps
    is_vllm: bool
    killed: list[int] = field(default_factory=list)
    processes: dict[int, set[int]] = field(default_factory=dict)

    def attach(self, patch: pytest.MonkeyPatch) -> None:
        import psutil  # comes with vLLM

        call = Handle.call

        async def watched(handle: Handle, method: str, payload: bytes = b"", **options: Any) -> bytes:
            if method == self.method and handle.pid is not None:
                if handle.pid not in self.processes:
                    self.processes[handle.pid] = {one.pid for one in psutil.Process(handle.pid).children(True)}
                if self.steps.metrics and not self.killed:
                    self.killed.append(handle.pid)
                    for pid in self.processes[handle.pid] if self.is_vllm else [handle.pid]:
                        os.kill(pid, signal.SIGKILL)
            return await call(handle, method, payload, **options)

        patch.setattr(Handle, "call", watched)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("play", ("cluster.workers=1",)),
        ("play", ("cluster.workers=1", "train.staleness=1", "train.steps=3")),  # the third is played after step 1
        ("play", ("cluster.workers=1", "engine.restarts=0")),
        ("generate", ("cluster.engines=2",)),
    ],
    ids=["workers", "workers-stale", "workers-vllm", "engines"],
)
async def test_processes_with_a_vllm_each_train_a_team_also_if_one_is_killed(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, words: tuple[str, ...]
) -> None:
    config, steps = config_of(*words), Steps()
    killing = Killing(method, steps, is_vllm=config.engine.restarts == 0)
    killing.attach(monkeypatch)
    trainer = Trainer(resolve_training(config), base, processes=lambda: started(config, base, tmp_path))
    outcome = await trainer.run(steps)
    done = config.train.steps
    assert outcome.reason == f"{done} steps done"
    assert outcome.progress.versions == {"planner": done, "executor": done}
    assert steps.ages == [{min(step, config.train.staleness)} for step in range(done)]
    for step in steps.metrics:
        assert step["episodes"]["failed"] == step["failed_attempts"] == 0
        assert max(found["gap"] for found in step["canary"].values()) <= 1e-4
        assert max(role["behaviour_gap"] for role in step["adapters"].values()) <= 1e-4  # of the versions that sampled
    last = steps.metrics[-1]
    assert len(killing.killed) == 1
    assert (last.get("workers") or last["engines"])["restarts"] == 1
    if "engines" in last:
        assert min(
            sum(step["engines"]["requests"][name] for step in steps.metrics) for name in ("engine-0", "engine-1")
        )
    assert all(killing.processes.values())  # each had a vLLM
    pids = [pid for one, own in killing.processes.items() for pid in (one, *own)]
    assert await until(lambda: not any(map(is_alive, pids)), limit_s=30)  # the last takes a moment on a busy machine
