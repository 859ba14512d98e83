"""What a default run takes, what shards are, and what is recorded of a run."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from selection import SHARDS, shard_of

TESTS = Path(__file__).parent
CONFIGURED = f"""
[pytest]
addopts = --strict-markers --import-mode=importlib -p no:cacheprovider
pythonpath = {TESTS}
markers =
    nightly
    matrix
"""
SUITE = """
import pytest

@pytest.mark.matrix("left,right", [(a, b) for a in range(10) for b in "xyz"], default=[(0, "x"), (9, "z")])
def test_pair(left, right):
    pass

@pytest.mark.matrix("case", [1, 2], default=[1], shard=False)
def test_dear(case):
    pass

@pytest.mark.nightly
def test_long():
    pass

@pytest.mark.nightly(of=3)
def test_rather_long():
    pass

@pytest.mark.nightly(shard=False)
def test_very_long():
    pass

def test_plain():
    pass
"""
WHOLE = """
import pytest

pytestmark = pytest.mark.nightly

def test_one():
    pass

def test_other():
    pass

@pytest.mark.nightly(of=1)
def test_own():
    pass
"""
SPINS = """
import time

def test_spins():
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass

def test_fails():
    assert False
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(CONFIGURED)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("selection", "durations")\n')
    (tmp_path / "test_some.py").write_text(SUITE)
    (tmp_path / "test_whole.py").write_text(WHOLE)
    return tmp_path


def pytest_in(suite: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", *words]
    return subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False, env=environment).stdout


def taken(suite: Path, *words: str) -> set[str]:
    lines = pytest_in(suite, *words, "--collect-only", "-q").splitlines()
    return {line.partition("::")[2] for line in lines if "::" in line}


FEW = 6
ALWAYS = {"test_plain", "test_own", "test_dear[1]", "test_pair[0-x]", "test_pair[9-z]"}
EVERY = {f"test_pair[{a}-{b}]" for a in range(10) for b in "xyz"} | {
    "test_plain",
    "test_own",
    "test_dear[1]",
    "test_long",
    "test_one",
    "test_other",
}


def test_shards_take_everything_once_beside_what_every_run_takes(suite: Path) -> None:
    # In one process, and with fewer shards: each takes a second.
    script = (
        f"import sys; sys.path.append({str(TESTS)!r})\n"
        "import pytest, selection\n"
        f"selection.SHARDS = {FEW}\n"
        f"for shard in range({FEW}):\n"
        "    print('shard', shard, flush=True)\n"
        "    pytest.main(['--collect-only', '-q', f'--shard={shard}'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    printed = subprocess.run(
        [sys.executable, "-c", script], cwd=suite, capture_output=True, text=True, check=True, env=environment
    ).stdout
    runs = [
        {line.partition("::")[2] for line in run.splitlines() if "::" in line} for run in printed.split("shard ") if run
    ]
    runs = [run for run in runs if run]
    assert len(runs) == FEW
    assert all(run >= ALWAYS for run in runs)
    found = Counter(name for run in runs for name in run - ALWAYS)
    assert found.pop("test_rather_long") == FEW / 3
    assert found == dict.fromkeys(EVERY - ALWAYS, 1)
    assert [{"test_one", "test_other"} & run for run in runs].count({"test_one", "test_other"}) == 1, "a file is whole"


def test_all_takes_everything_and_so_does_a_test_that_is_named(suite: Path) -> None:
    assert taken(suite, "--all") == EVERY | {"test_rather_long", "test_very_long", "test_dear[2]"}
    assert taken(suite, "test_some.py::test_very_long") == {"test_very_long"}


def test_the_commit_chooses_the_shard_and_the_run_prints_it(suite: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(suite)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert f"shard {shard_of(head)} of {SHARDS}" in pytest_in(suite, "-q")
    assert 0 <= shard_of(head) < SHARDS


def test_a_default_that_is_no_case_is_refused(suite: Path) -> None:
    (suite / "test_wrong.py").write_text(SUITE.replace('(9, "z")', '(10, "z")'))
    assert "must be some of the cases" in pytest_in(suite, "test_wrong.py")


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")])
def test_the_record_holds_every_file_and_function_with_what_it_took(suite: Path, workers: tuple[str, ...]) -> None:
    (suite / "test_spin.py").write_text(SPINS)
    pytest_in(suite, "--shard=3", "--durations-file=found/record.json", *workers)
    record = json.loads((suite / "found/record.json").read_text())
    assert (record["cases"], record["shard"], record["exit_status"]) == ("default", 3, 1)
    assert record["outcomes"]["failed"] == 1
    assert record["files"]["test_spin.py"]["cases"] == 2
    assert sum(file["cases"] for file in record["files"].values()) == sum(record["outcomes"].values())
    assert next(iter(record["functions"])) == "test_spin.py::test_spins"
    assert 0.55 < record["functions"]["test_spin.py::test_spins"]["cpu_s"] < 5
    assert record["cpu_s"] > record["files"]["test_spin.py"]["cpu_s"]
