"""The shape of the tree: links, layers, lightness, presets, docstrings, sizes."""

import ast
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

import mas

ROOT = Path(__file__).parents[1]
PACKAGE = Path(mas.__file__).parent
LINKS = ("roles", "protocols", "training", "scenarios")
IMPORTABLE = {
    Path(folder).name
    for folder in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["pythonpath"]
}
SOURCES = sorted(path for folder in ("mas", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("name", LINKS)
def test_the_folder_at_the_top_is_a_link_into_the_package(name: str) -> None:
    assert (ROOT / name).is_symlink()
    assert (ROOT / name).readlink() == Path("mas") / name
    listed = subprocess.run(
        ["git", "ls-files", "--stage", name], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert listed.startswith("120000 ")


def test_nothing_lies_at_the_top_that_was_not_put_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {line.partition("/")[0] for line in listed.splitlines() if "/" in line}
    assert folders == {".ci", ".github", "benchmarks", "docker", "docs", "examples", "mas", "tests"}


def test_git_ignores_no_source() -> None:
    """A file that is ignored works where it was written, and is missing in every clone."""
    sources = [path.relative_to(ROOT).as_posix() for path in SOURCES]
    words = ["git", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(words, cwd=ROOT, input="\n".join(sources), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_layers_hold(tmp_path: Path) -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(lint), "--cache-dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "import mas",
        "import mas.cli, mas.protocols, mas.scenarios, mas.runtime.team",
        "import mas.runs.resolve, mas.training.rollout",
    ],
)
def test_importing_loads_no_tensor_library_and_no_tracing(words: str) -> None:
    code = f"import sys\n{words}\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "peft", "opentelemetry"} & set(out.split())


def test_every_yaml_file_is_a_mapping() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.yaml")}
    assert [str(path) for path, text in texts.items() if not isinstance(yaml.safe_load(text), dict)] == []


def test_every_module_has_a_docstring() -> None:
    without = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if PACKAGE in path.parents and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert without == []


def test_what_tests_import_from_each_other_has_one_place() -> None:
    """The folders of tests are one namespace: of two modules of a name only the first can be imported."""
    tests = [path for path in SOURCES if ROOT / "tests" in path.parents]
    imported = {
        node.module
        for path in tests
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    found = Counter(path.stem for path in tests if path.stem in imported and path.parent.name in IMPORTABLE)
    assert [name for name, number in found.items() if number > 1 and name != "conftest"] == []


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in SOURCES if PACKAGE in path.parents}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > 500} == {}


def test_continuous_integration_runs_what_a_developer_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "make test"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_names_the_python_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.1" && exit 0\nexit 1\n')
    old.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(
        ["make", "install", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "needs Python 3.11 or later" in done.stderr
    assert "Python 3.8.1" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_no_page_or_file_holds_the_marks_of_a_merge() -> None:
    kinds = ("*.py", "*.md", "*.yaml", "*.toml", "Makefile")
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    files = [
        path
        for kind in kinds
        for folder in ("mas", "benchmarks", "tests", "docs")
        for path in (ROOT / folder).rglob(kind)
    ]
    marked = [path.name for path in files if any(line.startswith(marks) for line in path.read_text().splitlines())]
    assert marked == []
