"""The wheel and the archive of sources: built from the tracked files, and used outside the checkout."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import mas

ROOT = Path(__file__).parents[1]
BUILT = f"mas-{mas.__version__}"
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
"""What `python -m build --no-isolation` calls."""
SHORT = (
    "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=4", "algorithm.sampler.candidates=2",
)  # fmt: skip
SHIPPED = """
from pathlib import Path
import mas
from mas.core.scenario import Scenario
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.world import FolderScenario
print(mas.__file__)
for name in SCENARIOS:
    folder = Path(mas.__file__).parent / "scenarios" / name.partition("/")[0]
    if folder.is_dir():
        print(name, len((folder / "README.md").read_text(encoding="utf-8")))
"""


def tracked(folder: str = ".") -> list[str]:
    """The files of the checkout that a commit would hold, links to folders included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def built(hook: str, sources: Path, target: Path) -> tuple[Path, str]:
    """What a hook of the build backend made, and all that it printed."""
    target.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(target)],
        cwd=sources,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return target / done.stdout.splitlines()[-1], done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """What a wheel holds, without its list of hashes."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def metadata(files: dict[str, bytes]) -> Message:
    return Parser().parsestr(files[f"{BUILT}.dist-info/METADATA"].decode())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files, in a folder of their own: a build writes beside what it builds."""
    folder = tmp_path_factory.mktemp("sources")
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, printed = built("build_wheel", sources, tmp_path_factory.mktemp("wheel"))
    assert re.findall("(?im)^.*(?:warning|deprecat).*$", printed) == []
    return path


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    files = contents(wheel)
    of_metadata = {name for name in files if name.startswith(f"{BUILT}.dist-info/")}
    assert sorted(files.keys() - of_metadata) == sorted(tracked("mas"))  # so no benchmarks, tests or links
    assert {name.partition("/")[2] for name in of_metadata} == {
        "METADATA",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
        "top_level.txt",
    }
    assert files[f"{BUILT}.dist-info/top_level.txt"] == b"mas\n"
    assert "mas/py.typed" in files


def test_the_metadata_says_what_the_package_and_its_citation_say(wheel: Path) -> None:
    said = metadata(contents(wheel))
    assert (said["Name"], said["Version"], said["License-Expression"]) == ("mas", mas.__version__, "Apache-2.0")
    assert said["License-File"] == "LICENSE"
    assert said.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (mas.__version__, "Apache-2.0")
    assert said["Author"] == citation["authors"][0]["name"]
    assert citation["keywords"] == said["Keywords"].split(",")
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in said.get_all("Classifier", [])


def test_the_metadata_is_what_a_package_index_accepts(wheel: Path) -> None:
    check = pytest.importorskip("twine.commands.check", reason="twine is not installed (extra dev)")
    assert check.check([str(wheel)], strict=True) is False  # whether it failed


@pytest.mark.nightly
@pytest.mark.slow
def test_the_archive_of_sources_builds_an_equal_wheel_and_holds_no_tests(
    sources: Path, wheel: Path, tmp_path: Path
) -> None:
    archive, _ = built("build_sdist", sources, tmp_path)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    unpacked = tmp_path / "unpacked" / BUILT
    assert {path.name for path in unpacked.iterdir()} == {
        "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md",
        "SECURITY.md", "constraints.txt", "mas", "mas.egg-info", "pyproject.toml", "setup.cfg",
    }  # fmt: skip
    again, printed = built("build_wheel", unpacked, tmp_path / "again")
    assert re.findall("(?im)^.*(?:warning|deprecat).*$", printed) == []
    assert contents(again) == contents(wheel)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_installed_archive_of_sources_runs_outside_the_checkout(sources: Path, tmp_path: Path) -> None:
    archive, _ = built("build_sdist", sources, tmp_path)
    programs = install(archive, tmp_path / "environment")
    variables = image_variables(tmp_path / "cache")

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(programs / "python"), "-c", "import mas; print(mas.__file__)").strip()
    assert Path(where).is_relative_to(tmp_path / "environment")
    command = str(programs / "mas")
    assert run(command, "--version") == f"mas {mas.__version__}\n"
    assert "plan_path" in run(command, "scenarios")
    run(command, "new", "scenario", "mine")
    assert " 0 failed" in run(command, "check", "mine.py")


def image_variables(volume: Path) -> dict[str, str]:
    """The environment that docker/Dockerfile sets, its volume in a folder, for a user without a home."""
    text = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    set_there = dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.+)$", text, re.MULTILINE))))
    own = {name: value.replace("/cache", str(volume)) for name, value in set_there.items()}
    here = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HOME": "/nonexistent"}
    return here | own


def install(built_file: Path, folder: Path) -> Path:
    """The folder of programs of an environment with what was built in it, which borrows the packages that mas needs."""
    venv.create(folder, symlinks=True)
    (home,) = folder.glob("lib/python*/site-packages")
    (home / "borrowed.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([*pip, *options, str(built_file)], env=environment, check=True, capture_output=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("environment"))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)  # six processes, which compile what they import
def test_an_installed_wheel_does_outside_the_checkout_what_the_pages_say(
    installed: Path, small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    variables = image_variables(tmp_path / "cache")
    work = tmp_path / "work"
    work.mkdir()

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(words, cwd=work, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    command = str(installed / "mas")
    where, *readmes = run(str(installed / "python"), "-c", SHIPPED).splitlines()
    assert Path(where).is_relative_to(installed.parent)
    assert len(readmes) == len(list((ROOT / "mas" / "scenarios").glob("*/README.md")))
    assert all(int(line.split()[-1]) > 100 for line in readmes)
    assert run(command, "--version") == f"mas {mas.__version__}\n"
    assert "plan_path" in run(command, "scenarios")
    assert "at_grpo" in run(command, "algorithms")
    assert "planner" in run(command, "graph", "relay")
    assert "is finished: 2 steps done" in " ".join(
        run(command, "train", "scenario=relay", *SHORT, *small_overrides, "run_dir=runs/relay").split()
    )
    run(command, "report", "runs/relay")
    assert "<html" in (work / "runs" / "relay" / "report.html").read_text(encoding="utf-8")
    assert "trained" in run(command, "eval", "runs/relay", "--tasks", "2")
    refused = run(command, "bench", "serving", code=2)
    assert "benchmarks are no part of the installed package" in " ".join(refused.split())
    assert "Traceback" not in refused
