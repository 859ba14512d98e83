"""No Ray to be had is one error, of one line, and nothing is left of the try. No Ray is started here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import needs_ray

from mas.cluster import ClusterOptions
from mas.cluster.contract import open_cluster
from mas.core.errors import ClusterError

pytestmark = needs_ray


def test_training_on_a_ray_that_is_not_there_leaves_no_run_directory(
    mas: Callable[..., Any], tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    words = ("cluster=ray", "cluster.address=127.0.0.1:1", "cluster.workers=1", f"run_dir={run}")
    ran = mas("train", "scenario=relay", *small_overrides, *words)
    assert ran.code == 2
    assert ran.err.count("no Ray listens at 127.0.0.1:1 (ConnectionRefusedError") == 1
    assert "Traceback" not in ran.out + ran.err
    assert not run.exists()


async def test_what_ray_says_in_many_lines_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise RuntimeError("no room:\n  there is none\n\n  see the logs")

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(ClusterError) as raised:
        async with open_cluster(ClusterOptions(kind="ray"), tmp_path):
            pass
    assert str(raised.value) == "Ray: starting: RuntimeError: no room: there is none see the logs"
