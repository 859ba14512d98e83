"""What a process that trains does not load, though it is installed."""

import subprocess
import sys

import pytest


@pytest.mark.nightly(of=16)
def test_the_trainer_loads_neither_scipy_nor_scikit_learn() -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("sklearn")
    code = "import sys, mas.training.trainer\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "transformers" in loaded
    assert not {"scipy", "sklearn", "pandas"} & loaded
