"""The page on clusters: its example runs, and its tables name what there is."""

import re
import subprocess
import sys
from pathlib import Path

from pages import blocks, read

from mas.cluster import Cluster, Handle

PAGE = "docs/cluster.md"


def test_the_example_runs(tmp_path: Path) -> None:
    for block in blocks(PAGE, "python"):
        assert block.file is not None
        (tmp_path / block.file).write_text(block.text)
    words = [sys.executable, "driver.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("b'42'\nb'1000000'\n", 0), done.stderr
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["counter-0.err", "counter-0.out"]


def test_the_table_names_the_whole_contract() -> None:
    table = read(PAGE).partition("## The contract")[2].partition("Both kinds")[0]
    named = set(re.findall(r"`(cluster|handle)\.(\w+)", table))
    inner = {"start", "member", "pid", "close", "wait_ended"}
    assert {name for kind, name in named if kind == "cluster"} == {
        name for name in vars(Cluster) if not name.startswith("_")
    }
    assert {name for kind, name in named if kind == "handle"} >= {
        name for name in vars(Handle) if not name.startswith("_")
    } - inner
