"""Options that fit, kinds that are there, and what importing loads."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from pydantic import ValidationError

from mas.cluster import ClusterOptions, open_cluster
from mas.cluster.contract import CLUSTERS
from mas.cluster.environment import clean_environment
from mas.cluster.resources import cores, with_room
from mas.config.options import WorkerOptions
from mas.core.errors import ClusterError, MissingPackage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "10.0.0.1:6379"}, r"address=10\.0\.0\.1:6379 is of Ray: set kind=ray"),
        ({"store_mib": 100}, r"store_mib=100 is of Ray"),
        ({"strategy": "spread"}, r"strategy=spread is of Ray"),
        ({"kind": "ray", "strategy": "pack"}, r"strategy=pack is of a Ray with several nodes: set address"),
        ({"kind": "ray", "address": "auto", "cpus": 4}, r"cpus=4\.0 is of a Ray that is started here"),
        ({"kind": "ray", "address": "auto", "gpus": 0}, r"gpus=0 is of a Ray that is started here"),
        ({"kind": "ray", "address": "ray://head:10001"}, r"should match pattern"),
        ({"kind": "slurm"}, r"'local' or 'ray'"),
        ({"cpus": 0}, r"greater than 0"),
        ({"workers": 4}, r"Extra inputs are not permitted"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ClusterOptions.model_validate(options)


def test_a_cluster_that_is_started_here_has_the_cpus_that_are_asked_for() -> None:
    assert with_room(ClusterOptions(), cores() + 6.5).cpus == cores() + 7
    assert with_room(ClusterOptions(kind="ray"), 0.5).cpus == cores()
    assert with_room(ClusterOptions(cpus=1), 8).cpus == 1, "a number that is given stays"
    assert with_room(ClusterOptions(kind="ray", address="auto"), 8).cpus is None, "of a Ray that others started"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"workers": 3, "cpus": 2},
            r"3 workers ask for 3 CPUs together, and cluster\.cpus=2 is less: set cluster\.cpus=3",
        ),
        ({"engines": 2, "worker_cpus": 0.6, "cpus": 1}, r"2 engines ask for 1\.2 CPUs .*set cluster\.cpus=2"),
        (
            {"workers": 1, "learners": 3, "cpus": 2},
            r"1 workers and 2 learner ranks ask for 3 CPUs .*cluster\.learner_cpus",
        ),
        ({"workers": 2, "worker_gpus": 1}, r"2 workers ask for 2 GPUs together, and cluster\.gpus=0 is less"),
        ({"kind": "ray", "workers": 3, "worker_gpus": 0.5, "gpus": 1}, r"ask for 1\.5 GPUs .*set cluster\.gpus=2"),
    ],
)
def test_processes_that_ask_for_more_than_the_cluster_has_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WorkerOptions.model_validate(options)


def test_processes_that_fit_or_whose_ray_others_started_are_not_refused() -> None:
    assert WorkerOptions(workers=3, worker_cpus=0.1, learners=2, learner_cpus=0.7, cpus=1).asked_cpus == pytest.approx(
        1
    )
    WorkerOptions(workers=2, worker_gpus=0.5, gpus=1)
    WorkerOptions(kind="ray", address="auto", workers=8, worker_gpus=1)


def test_without_ray_there_is_one_error_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("mas.cluster.ray_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.exceptions", None)
    with pytest.raises(MissingPackage, match=r"cluster.kind=ray needs the package 'ray.*': pip install 'mas\[ray\]'"):
        open_cluster(ClusterOptions(kind="ray"), tmp_path)
    assert set(CLUSTERS) == {"local", "ray"}


def test_without_ray_training_is_refused_before_a_base_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mas: Callable[..., Ran]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("mas.runs.train.open_base", None)
    ran = mas("train", "scenario=relay", "cluster=ray", "cluster.workers=2", f"run_dir={tmp_path / 'run'}")
    assert (ran.code, ran.err.count("pip install 'mas[ray]'")) == (2, 1)
    assert not (tmp_path / "run").exists()


def test_importing_the_package_loads_neither_ray_nor_a_tensor_library() -> None:
    code = "import sys, mas.cluster, mas.cluster.local, mas.cluster.worker\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"ray", "torch", "transformers"} & set(out.split())


async def test_a_cluster_that_was_not_entered_or_cannot_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"was not entered with `async with`"):
        await open_cluster(ClusterOptions(), tmp_path).spawn("worker", "module:make")
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"cannot be written to"):
        async with open_cluster(ClusterOptions(), tmp_path / "file"):
            pass


def test_workers_get_no_secrets_unless_they_are_named() -> None:
    given = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HF_HOME": "/hf",
        "HF_TOKEN": "t",
        "VLLM_API_KEY": "k",
        "NCCL_PASSWD": "p",
        "TORCH_PASSPHRASE": "p",
        "HF_AUTH": "a",
        "HF_PAT": "p",
        "HF_pat": "p",
        "HF_DATA_PATH": "/data",
        "MAS_BUS_PASSWORD": "p",
        "AWS_SECRET_ACCESS_KEY": "s",
        "LD_PRELOAD": "/x.so",
        "OMP_NUM_THREADS": "64",
    }
    kept = clean_environment(given, ("HF_TOKEN",), 2)
    assert {name: kept.get(name) for name in given} == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HF_HOME": "/hf",
        "HF_TOKEN": "t",
        "VLLM_API_KEY": None,
        "NCCL_PASSWD": None,
        "TORCH_PASSPHRASE": None,
        "HF_AUTH": None,
        "HF_PAT": None,
        "HF_pat": None,
        "HF_DATA_PATH": "/data",
        "MAS_BUS_PASSWORD": None,
        "AWS_SECRET_ACCESS_KEY": None,
        "LD_PRELOAD": None,
        "OMP_NUM_THREADS": "2",
    }
    assert kept["PYTHONPATH"]
